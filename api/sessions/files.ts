import { z } from "zod";
import { callDefaults, type CallRequest, SessionFile } from "../../shared/wire/client/session.ts";
import { whyNotFileName } from "../../shared/wire/file.ts";
import type { ClientDeps } from "../deps.ts";
import { contentTypeOf } from "../domain/files/content-type.ts";
import { decodeUtf8 } from "../../shared/bytes.ts";
import { AppError, notFound } from "../errors.ts";
import type { FoundFiles } from "../files/input-files.ts";
import { type Origin, wrongField } from "../jobs/new-execution.ts";
import { timestamp } from "../jobs/record.ts";
import { waitForSync } from "../jobs/wait.ts";
import type { FullExecution } from "../store/jobs/read.ts";
import { submitCall } from "./submit-call.ts";

/**
 * Files of a session, read and written by calls of kind `files`, in the order of calls. Programs of the image do it
 * inside the sandbox, as the code's user: whatever the code has made of /output, they reach nothing else.
 */

/** Who asks, and how long. */
export interface Asking {
  deps: ClientDeps;
  id: string;
  origin: Omit<Origin, "mode">;
  signal: AbortSignal;
}

/** @throws AppError 400 unless it is a path below /output. */
export function checkPath(path: string): void {
  const fault = whyNotFileName(path, "work");
  if (fault !== undefined) throw wrongField("path", fault);
}

/** Writes a file, and the folders of its path. */
export async function writeFile(asking: Asking, path: string, content: Uint8Array): Promise<void> {
  const sha256 = await asking.deps.sha256(content);
  const bytes = { content, sizeBytes: content.length, sha256, storeKey: null, owner: null };
  const file = { ...bytes, name: path, contentType: contentTypeOf(path), toWork: true };
  refuseUnlessDone(path, await runCall(asking, {}, [file]));
}

/** An execution that has brought a file as its one artifact. */
export async function fetchFile(asking: Asking, path: string): Promise<FullExecution> {
  const done = await runCall(asking, { fetch: [path] });
  refuseUnlessDone(path, done);
  if (done.artifacts.length > 0) return done;
  const { warnings } = done.execution;
  const why = warnings ? ` ${warnings.join(" ")}` : "";
  throw new AppError("not_found", `${path} is no file of session ${asking.id}.${why}`, {
    session_id: asking.id,
  });
}

export async function removeFile(asking: Asking, path: string): Promise<void> {
  const done = await runCall(asking, { command: python(removal, path) });
  refuseMissing(asking, path, done);
  refuseUnlessDone(path, done);
}

/** What a folder has, ordered by name; at most a thousand entries. */
export async function listFolder(asking: Asking, path: string): Promise<SessionFile[]> {
  const done = await runCall(asking, { command: python(listing, path) });
  refuseMissing(asking, path, done);
  refuseUnlessDone(path, done);
  const found = Entries.safeParse(parsed(done.payload.stdout));
  if (!found.success) throw broken(path, done, "its listing cannot be read");
  return found.data.map(([name, type, size_bytes, modifiedAt]) => ({
    path: (path === "" ? name : `${path}/${name}`).toWellFormed(),
    type,
    size_bytes,
    modified_at: timestamp(modifiedAt),
  }));
}

const Entries = z.array(
  z.tuple([z.string(), SessionFile.shape.type, z.int().min(0), z.int().min(0).max(8.64e15)]),
);

function parsed(stdout: Uint8Array | null): unknown {
  try {
    return JSON.parse(decodeUtf8(stdout ?? new Uint8Array()));
  } catch {
    return undefined;
  }
}

const missing = 44;
const python = (program: string, path: string) => ["python3", "-I", "-c", program, path];

const listing = `import json, os, sys
try:
    entries = sorted(os.scandir(sys.argv[1] or "."), key=lambda entry: entry.name)
except (FileNotFoundError, NotADirectoryError):
    sys.exit(${missing})
items = []
for entry in entries[:1000]:
    found = entry.stat(follow_symlinks=False)
    is_folder = entry.is_dir(follow_symlinks=False)
    kind = "folder" if is_folder else "file" if entry.is_file(follow_symlinks=False) else "other"
    items.append([entry.name, kind, found.st_size, max(0, int(found.st_mtime * 1000))])
print(json.dumps(items))
`;

const removal = `import os, shutil, sys
path = sys.argv[1]
try:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
except FileNotFoundError:
    sys.exit(${missing})
`;

async function runCall(
  { deps, id, origin, signal }: Asking,
  call: Partial<CallRequest>,
  files: FoundFiles["rows"] = [],
): Promise<FullExecution> {
  // A read of the records of all tenants has no tenant whose call it could be.
  if (deps.db.tenant === "*") {
    throw new AppError(
      "invalid_request",
      "A file belongs to one tenant: name it in X-Airlock-Tenant.",
    );
  }
  const request = { ...callDefaults, ...call };
  const sync = { ...origin, mode: "sync" } as const;
  const { job_id } = await submitCall(deps, id, request, sync, { kind: "files", files });
  return waitForSync(deps, job_id, false, signal);
}

function refuseMissing({ id }: Asking, path: string, { execution }: FullExecution): void {
  if (execution.exitCode !== missing) return;
  throw notFound(`${path === "" ? "The folder" : path} of session ${id}`, { session_id: id });
}

/** @throws AppError 409 with the error of the call. */
function refuseUnlessDone(path: string, done: FullExecution): void {
  const { error } = done.execution;
  if (error) throw broken(path, done, error.message);
}

function broken(path: string, { execution }: FullExecution, why: string): AppError {
  const { id, sessionId, error } = execution;
  return new AppError("conflict", `${path === "" ? "/output" : path}: ${why}`, {
    job_id: id,
    ...(sessionId !== null && { session_id: sessionId }),
    ...(error && { error }),
  });
}
