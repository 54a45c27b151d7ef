import { ArtifactList, SyncResult } from "../../../shared/wire/execution.ts";
import { artifactPath, ask, type Call, post, problemOf, Refusal, sessionFile } from "../facade.ts";
import { move } from "./filesystem.ts";
import { belowHome, toOurs, toTheirs } from "./paths.ts";

/** GET and POST /files: the bytes of files. */
export async function files(call: Call, session: string): Promise<Response> {
  const path = call.query.get("path") ?? "";
  if (call.method === "GET") return read(call, session, path);
  if (call.method === "POST") return write(call, session, path);
  throw new Refusal(501, `This service has no ${call.method} ${call.path}.`);
}

/** Files elsewhere than in the home folder come as artifacts of a call. */
async function read(call: Call, session: string, path: string): Promise<Response> {
  const below = belowHome(path);
  if (below !== undefined) return opened(call, sessionFile(session, below));
  const fetched = await post(call, `/sessions/${session}/execute`, { fetch: [toOurs(path)] });
  const { job_id } = SyncResult.parse(fetched);
  const { artifacts } = ArtifactList.parse(await ask(call, `/jobs/${job_id}/artifacts`));
  if (artifacts[0] === undefined) throw new Refusal(404, `${path}: there is no such file`);
  return opened(call, artifactPath(job_id, artifacts[0].name));
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

/** Files elsewhere than in the home folder are moved from there. */
async function store(
  call: Call,
  session: string,
  path: string,
  bytes: Uint8Array<ArrayBuffer>,
): Promise<void> {
  const below = belowHome(path);
  const headers = { "Content-Type": "application/octet-stream" };
  const put = (place: string) =>
    ask(call, sessionFile(session, place), { method: "PUT", headers, body: bytes });
  if (below !== undefined) return void (await put(below));
  const place = `.upload-${crypto.randomUUID()}`;
  try {
    await put(place);
    await move(call, session, place, path);
  } catch (error) {
    // Also for a client that has hung up.
    const removed = await call.api(sessionFile(session, place), { method: "DELETE" });
    await removed.body?.cancel();
    if (!(error instanceof Refusal)) throw error;
    throw new Refusal(error.status, error.message.replaceAll(place, path));
  }
}
