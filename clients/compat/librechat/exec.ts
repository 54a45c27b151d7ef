import { z } from "zod";
import { languages, python } from "../../../shared/languages.ts";
import type { SyncResult } from "../../../shared/wire/execution.ts";
import { limits } from "../../../shared/wire/limits.ts";
import {
  type Call,
  execute,
  fillWorkingFolder,
  isOwnError,
  parseBody,
  Refusal,
  shellWords,
} from "../facade.ts";
import { filesOf, type Stored } from "./files.ts";
import { shortId } from "./ids.ts";

/** A file that a client has been told of. Earlier clients call the session of its storage `session_id`. */
export const FileRef = z.object({
  id: z.string(),
  name: z.string(),
  storage_session_id: z.string().nullish(),
  session_id: z.string().nullish(),
});
export type FileRef = z.infer<typeof FileRef>;
/** More would be refused one by one, each with requests of its own. */
export const FileRefs = z.array(FileRef).max(limits.inputFilesMax);

const Exec = z.object({
  lang: z.string(),
  code: z.string(),
  args: z.array(z.string()).nullish(),
  files: FileRefs.nullish(),
  timeout: z.number().positive().nullish(),
});

/** LibreChat's names of languages, where Airlock has other names. */
const names: Readonly<Record<string, string>> = {
  py: "python",
  js: "javascript",
  node: "javascript",
  nodejs: "javascript",
  ts: "typescript",
  rs: "rust",
  sh: "bash",
};

export const holdMs = 15_000;

/** Runs code in a sandbox of its own. */
export async function exec(call: Call): Promise<Response> {
  const asked = await parseBody(Exec, await call.text(), 400);
  const { code, args, timeout } = asked;
  const given = await givenFiles(call, asked.files ?? []);
  const job = {
    code,
    ...programOf(asked.lang, given.length > 0),
    ...(args?.length && { args }),
    ...inputsOf(given, timeout),
  };
  const result = await execute(call, job, holdMs);
  if (isOwnError(result)) throw new Refusal(500, result.error!.message);
  return Response.json(await answerOf(call, result, given));
}

/** @param timeoutMs The client's limit; without one, that of the job type counts. */
export function inputsOf(given: readonly Given[], timeoutMs: number | null | undefined): object {
  return {
    files: given.map(({ name, source }) => ({ name: `work/${name}`, ...source })),
    ...(timeoutMs && { timeout: Math.ceil(timeoutMs / 1000) }),
  };
}

type Ended = Pick<SyncResult, "job_id" | "stdout" | "stderr" | "exit_code" | "error" | "compile">;

/** What a client gets of code that has ended. */
export async function answerOf(
  call: Call,
  { job_id, stdout, stderr, exit_code, error, compile }: Ended,
  given: readonly Given[],
): Promise<object> {
  const session_id = shortId("execution", job_id);
  const why = exit_code === null && !compile ? `${error?.message}\n` : "";
  return {
    session_id,
    stdout,
    stderr: `${compile?.stderr ?? ""}${stderr}${why}`,
    files: (await filesOf(call, session_id)).map((file) => refOf(file, session_id, given)),
  };
}

/** A file that the code did not change stays the one that the client gave. */
function refOf({ id, name, sha256 }: Stored, session: string, given: readonly Given[]): object {
  const same = given.find((file) => file.name === name && file.sha256 === sha256);
  if (same === undefined) return { id, name, storage_session_id: session };
  return { id: same.id, name, storage_session_id: same.session, inherited: true };
}

/** A file that a request gives its code. */
export interface Given {
  readonly id: string;
  readonly session: string;
  readonly name: string;
  readonly sha256?: string | undefined;
  readonly source: object;
}

/** Of files with the same name, the last one counts. */
export async function givenFiles(call: Call, refs: readonly FileRef[]): Promise<Given[]> {
  const files = new Map<string, Given>();
  const known = new Map<string, Promise<Stored[]>>();
  for (const { id, name, storage_session_id, session_id } of refs) {
    const session = storage_session_id ?? session_id ?? "";
    if (!known.has(session)) known.set(session, filesOf(call, session));
    const stored = (await known.get(session)!).find((file) => file.id === id);
    if (stored === undefined) throw new Refusal(404, `File not found: ${name}`);
    files.set(name, { id, session, name, sha256: stored.sha256, source: stored.source });
  }
  return [...files.values()];
}

/** The code is in another folder than its modules, and what Python compiles is no file of the code. */
const ofPython = "PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1";

/** Files are in the working folder, which a shell fills first; a compiler then runs in that shell, too. */
function programOf(lang: string, hasFiles: boolean): object {
  const name = names[lang] ?? lang;
  const known = name === "python" ? python : languages[name];
  if (known === undefined) throw new Refusal(400, `Unsupported language: ${lang}`);
  if (!hasFiles) return name === "python" ? {} : { language: name };
  const { compile, run } = known;
  const compiling = compile ? ` && ${shellWords(compile)}` : "";
  const script = `${fillWorkingFolder}${compiling} && ${ofPython} exec ${shellWords(run)} "$@"`;
  return { command: ["sh", "-c", script, "sh"] };
}
