import { z } from "zod";
import { Artifact } from "../../../shared/wire/execution.ts";
import { FilePage, UploadedFile } from "../../../shared/wire/file.ts";
import { artifactPath, ask, type Call, Refusal } from "../facade.ts";
import { nameId, readId, shortId, timeOf, uuidAt } from "./ids.ts";

/** A file that a client can download, and give to code. */
export interface Stored {
  readonly id: string;
  readonly name: string;
  readonly size: number;
  readonly sha256?: string | undefined;
  /** Where a job finds it. */
  readonly source: object;
  /** Its bytes. */
  readonly open: () => Promise<Response>;
}

/** A file of the code that is not listed among its artifacts, because the record has it as `output`. */
const resultName = "result.json";

const uploadMs = 600_000;
const pageSize = 100;

/** The files of a session: those that an execution left behind, or those of an upload. */
export async function filesOf(call: Call, session: string): Promise<Stored[]> {
  const { kind, uuid } = readId(session);
  if (kind === "execution") return artifactsOf(call, uuid);
  return kind === "upload" ? uploadsOf(call, uuid, session) : [];
}

/** @throws Refusal 404 */
export async function fileOf(call: Call, session: string, id: string): Promise<Stored> {
  const found = (await filesOf(call, session)).find((file) => file.id === id);
  if (found === undefined) throw new Refusal(404, "File not found");
  return found;
}

const Left = z.object({ artifacts: z.array(Artifact) });

async function artifactsOf(call: Call, jobId: string): Promise<Stored[]> {
  const record = await ask(call, `/executions/${jobId}?view=full&fields=artifacts`);
  const { artifacts } = Left.parse(record);
  const files = artifacts.map((artifact) => artifactOf(call, jobId, artifact));
  if (artifacts.some(({ name }) => name === resultName)) return Promise.all(files);
  const path = artifactPath(jobId, resultName);
  const { ok, headers } = await call.api(path, { method: "HEAD", signal: call.signal });
  if (ok) {
    const size_bytes = Number(headers.get("Content-Length"));
    const sha256 = headers.get("ETag")?.replaceAll('"', "");
    files.push(artifactOf(call, jobId, { name: resultName, size_bytes, sha256 }));
  }
  return Promise.all(files);
}

async function artifactOf(
  call: Call,
  jobId: string,
  {
    name,
    size_bytes,
    sha256,
  }: Pick<Artifact, "name" | "size_bytes"> & { sha256?: string | undefined },
): Promise<Stored> {
  return {
    id: await nameId(name),
    name,
    size: size_bytes,
    sha256,
    source: { artifact: { job_id: jobId, name } },
    open: () => call.api(artifactPath(jobId, name), { signal: call.signal }),
  };
}

/** The names of an upload's files begin with its id. They were stored soon after it began. */
async function uploadsOf(call: Call, began: string, session: string): Promise<Stored[]> {
  const found: Stored[] = [];
  const ms = timeOf(began).getTime();
  const first = uuidAt(ms);
  let before = uuidAt(ms + uploadMs);
  for (;;) {
    const page = await ask(call, `/files?limit=${pageSize}&before=${before}`);
    const { items, has_more } = FilePage.parse(page);
    for (const { file_id, name, size_bytes, sha256 } of items) {
      if (file_id < first) return found;
      if (!name.startsWith(`${session}/`)) continue;
      found.push({
        id: shortId("file", file_id),
        name: name.slice(session.length + 1),
        size: size_bytes,
        sha256,
        source: { file_id },
        open: () => call.api(`/files/${file_id}`, { signal: call.signal }),
      });
      before = file_id;
    }
    before = items.at(-1)?.file_id ?? before;
    if (!has_more) return found;
  }
}

/** Stores the files of a form, each as one of Airlock's. */
export async function upload(call: Call, isBatch: boolean): Promise<Response> {
  const files = await call.form();
  if (files.length === 0) throw new Refusal(400, "No files provided");
  const session = shortId("upload", uuidAt(Date.now(), crypto.getRandomValues(new Uint8Array(10))));
  const stored: {
    status: "success" | "error";
    filename: string;
    fileId?: string;
    error?: string;
  }[] = [];
  for (const file of files) {
    try {
      const fileId = await store(call, `${session}/${file.name}`, file.bytes);
      stored.push({ status: "success", filename: file.name, fileId });
    } catch (error) {
      if (!(error instanceof Refusal) || !isBatch) throw error;
      stored.push({ status: "error", filename: file.name, error: error.message });
    }
  }
  const failed = stored.filter(({ status }) => status === "error").length;
  const succeeded = stored.length - failed;
  const message = failed === 0 ? "success" : succeeded === 0 ? "error" : "partial_success";
  const answer = { message, storage_session_id: session, session_id: session };
  if (!isBatch) {
    return Response.json({
      ...answer,
      files: stored.map(({ filename, fileId }) => ({ filename, fileId })),
    });
  }
  const status = succeeded === 0 ? 400 : 200;
  return Response.json({ ...answer, files: stored, succeeded, failed }, { status });
}

async function store(call: Call, name: string, bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const answer = await ask(call, `/files?name=${encodeURIComponent(name)}`, {
    method: "POST",
    headers: { "Content-Length": String(bytes.length) },
    body: bytes,
  });
  return shortId("file", UploadedFile.parse(answer).file_id);
}

/** @throws Refusal 409 for the file of an execution. */
export async function remove(call: Call, session: string, id: string): Promise<Response> {
  const { kind } = readId(session);
  if (kind === "execution") {
    throw new Refusal(409, "Files of an execution are removed with its record.");
  }
  await ask(call, `/files/${readId(id).uuid}`, { method: "DELETE" });
  return Response.json({ message: "success" });
}

/** How the service describes a file. */
export function describe({ id, name, size, sha256 }: Stored, session: string): object {
  const ending = /\.[^./]*$/.exec(name)?.[0] ?? "";
  return {
    name: `${session}/${id}${ending}`,
    id,
    storage_session_id: session,
    size,
    etag: sha256,
    lastModified: timeOf(readId(session).uuid).toISOString(),
    metadata: { "original-filename": name },
  };
}
