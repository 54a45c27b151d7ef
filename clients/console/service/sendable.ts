import { joinArguments, splitArguments } from "../model/arguments.ts";
import { filesOf, named, placeholder } from "../model/made-by.ts";
import { laidOut, readInput } from "../model/read-input.ts";
import { type Call, executeCall } from "../model/snippets.ts";
import { beginFork, type Draft, draft, keptFiles } from "./draft.ts";
import {
  type Artifact,
  type AsyncSubmitRequest,
  copyInput,
  type ExecutionRecord,
  fork,
  type ForkRequest,
  getExecution,
  getSubmitted,
  submit,
  type Submitted,
  type SubmittedJob,
} from "./records.ts";

export interface Parent extends Submitted {
  record: ExecutionRecord;
  files: Artifact[];
}

/** Begins the draft of a fork with the submission of its parent. */
export async function loadParent(
  id: string | undefined,
  signal: AbortSignal,
): Promise<Parent | undefined> {
  if (id === undefined) return undefined;
  const [submitted, record] = await Promise.all([
    getSubmitted(id, signal),
    getExecution(id, signal),
  ]);
  signal.throwIfAborted();
  beginFork(id, {
    code: submitted.code,
    input: laidOut(submitted.input),
    jobType: record.job_type,
    language: languageOf(record),
    args: joinArguments(record.args ?? []),
    stdin: record.stdin ?? "",
  });
  return { ...submitted, record, files: filesOf(record) };
}

/** What the draft sends. */
interface Sendable {
  call: Call;
  isFork: boolean;
  /** Files of the parent that are copied for an execution of its own. */
  copied: Artifact[];
}

export async function send({ call, isFork, copied }: Sendable, parent = ""): Promise<SubmittedJob> {
  if (isFork) return fork(parent, call.body as ForkRequest);
  const copies = await Promise.all(copied.map(({ name }) => copyInput(parent, name)));
  const files = [...copies, ...draft.value.files].map(({ name, file_id }) => ({ name, file_id }));
  return submit({ ...(call.body as AsyncSubmitRequest), files });
}

/** Reads the draft, or says what is wrong with it. */
export function readDraft(now: Draft, parent: Parent | undefined): Sendable | { problem: string } {
  const read = readInput(now.input);
  if ("problem" in read) return read;
  const split = splitArguments(now.args);
  if ("problem" in split) return split;
  const { code, jobType, stdin } = now;
  const { args } = split;
  const typed = now.timeout === "" ? undefined : Number(now.timeout);
  if (typed !== undefined && !(Number.isInteger(typed) && typed > 0)) {
    return { problem: "The time limit must be a whole number of seconds, at least 1." };
  }
  const isSameLanguage = now.language === (parent && languageOf(parent.record));
  const isPython = now.language === "python" && !(isSameLanguage && parent?.record.command);
  const results = isPython && { results: true };
  const copied = keptFiles(parent?.files ?? [], now);
  const hasSameFiles = copied.length === parent?.files.length && now.files.length === 0;
  if (parent && hasSameFiles && isSameLanguage && isSame(read, readInput(parent.input))) {
    const limit = typed !== undefined && { timeout: typed };
    const body = { code, job_type: jobType, args, stdin, ...results, ...limit };
    const path = `/jobs/${parent.record.execution_id}/fork`;
    return { call: { path, body }, isFork: true, copied: [] };
  }
  const { timeout = typed, startup_timeout, requirements, metadata } = parent?.record ?? {};
  const files = [...copied.map(placeholder), ...now.files];
  const { path, body } = executeCall({ ...now, ...read, args, timeout: typed ?? timeout, files });
  const { command, compile_command, compile_timeout } = isSameLanguage ? parent!.record : {};
  const program = { command, compile_command, compile_timeout };
  const given = named({ startup_timeout, requirements, metadata, ...program });
  return { call: { path, body: { ...body, ...results, ...given } }, isFork: false, copied };
}

/** A command counts as Python: the choice of a language replaces it. */
const languageOf = ({ language = "python" }: ExecutionRecord): string => language;

const isSame = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
