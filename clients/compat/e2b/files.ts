import { ArtifactList } from "../../../shared/wire/execution.ts";
import { artifactPath, ask, type Call, problemOf, Refusal, sessionFile } from "../facade.ts";
import { copyOut, write as writeFile } from "./filesystem.ts";
import { belowHome, toOurs, toTheirs } from "./paths.ts";

/** GET and POST /files: the bytes of files. */
export async function files(call: Call, session: string): Promise<Response> {
  const path = call.query.get("path") ?? "";
  if (call.method === "GET") return read(call, session, path);
  if (call.method === "POST") return write(call, session, path);
  throw new Refusal(501, `This service has no ${call.method} ${call.path}.`);
}

/**
 * Reads a file. A file outside the home folder, or behind a symbolic link, comes as an artifact of a call.
 */
async function read(call: Call, session: string, path: string): Promise<Response> {
  const below = belowHome(path);
  if (below !== undefined) {
    const answer = await call.api(sessionFile(session, below), { signal: call.signal });
    if (answer.ok) return answer;
    const { detail } = problemOf(await answer.text());
    if (answer.status !== 404) throw new Refusal(answer.status, detail);
  }
  const jobId = await copyOut(call, session, path);
  const { artifacts } = ArtifactList.parse(await ask(call, `/jobs/${jobId}/artifacts`));
  if (artifacts[0] === undefined) throw new Refusal(507, `${path}: is too large to be read`);
  return opened(call, artifactPath(jobId, artifacts[0].name));
}

async function opened(call: Call, place: string): Promise<Response> {
  const answer = await call.api(place, { signal: call.signal });
  if (answer.ok) return answer;
  throw new Refusal(answer.status, problemOf(await answer.text()).detail);
}

async function write(call: Call, session: string, path: string): Promise<Response> {
  const written: object[] = [];
  for (const file of await call.form()) {
    const name = path || file.name;
    await store(call, session, name, file.bytes);
    const place = toTheirs(toOurs(name));
    written.push({ name: place.split("/").at(-1), type: "file", path: place });
  }
  if (written.length === 0) throw new Refusal(400, "The form has no file.");
  return Response.json(written);
}

/**
 * Writes a file. The service itself writes only plain files of the home folder: for a file elsewhere, or behind a symbolic
 * link, it writes a temporary file, which a program in the sandbox copies.
 */
async function store(
  call: Call,
  session: string,
  path: string,
  bytes: Uint8Array<ArrayBuffer>,
): Promise<void> {
  const headers = { "Content-Type": "application/octet-stream" };
  const put = (place: string) =>
    ask(call, sessionFile(session, place), { method: "PUT", headers, body: bytes });
  const below = belowHome(path);
  const isWritten = below !== undefined && (await unlessConflict(put(below)));
  if (isWritten) return;
  const temporary = `.upload-${crypto.randomUUID()}`;
  try {
    await put(temporary);
    await writeFile(call, session, temporary, path);
  } catch (error) {
    // Also for a client that has hung up.
    const removed = await call.api(sessionFile(session, temporary), { method: "DELETE" });
    await removed.body?.cancel();
    if (!(error instanceof Refusal)) throw error;
    throw new Refusal(error.status, error.message.replaceAll(temporary, path));
  }
}

async function unlessConflict(done: Promise<unknown>): Promise<boolean> {
  try {
    await done;
    return true;
  } catch (error) {
    if (error instanceof Refusal && error.status === 409) return false;
    throw error;
  }
}
