import { computed, type Signal, signal } from "@preact/signals";
import type {
  AsyncSubmitRequest,
  ExecutionRecord,
  ForkRequest,
  SubmittedJob,
  UploadedFile,
} from "../../typescript/src/generated.ts";
import {
  type Call,
  exampleCode,
  exampleInput,
  executeCall,
  filesOf,
  joinArguments,
  laidOut,
  named,
  placeholder,
  readInput,
  splitArguments,
} from "../model/submission.ts";
import { api, files } from "./client.ts";
import { route } from "./location.ts";
import { type Artifact, copyInput, getExecution, getSubmitted, type Submitted } from "./records.ts";

interface Draft {
  code: string;
  input: string;
  jobType: string;
  language: string;
  /** One text, which is split as a shell does. */
  args: string;
  stdin: string;
  /** Seconds, as typed; empty: that of the job type or, for a fork, of its parent. */
  timeout: string;
  files: UploadedFile[];
  /** Names of the parent's files that a fork leaves out. */
  without: string[];
}

/** The parent, and what was changed in its code and in what it was given. */
interface ForkDraft extends Draft {
  parent: string | undefined;
}

/** A run of the playground. */
interface Run {
  id: string;
  at: string;
  /** The beginning of its code. */
  title: string;
}
const mostRuns = 20;

const blank: Draft = {
  code: exampleCode,
  input: exampleInput,
  jobType: "default",
  language: "python",
  args: "",
  stdin: "",
  timeout: "",
  files: [],
  without: [],
};

const storages = [sessionStorage, localStorage];

/** A value that survives a reload of its tab. The next tab begins with it. */
function kept<T extends object>(place: string, start: T): Signal<T> {
  const value = signal<T>(start);
  try {
    const stored = sessionStorage.getItem(place) ?? localStorage.getItem(place) ?? "{}";
    value.value = { ...start, ...(JSON.parse(stored) as T) };
  } catch {
    // Something else is stored there.
  }
  let isSaved = true;
  const save = (): void => {
    if (isSaved) return;
    isSaved = true;
    for (const storage of storages) {
      try {
        storage.setItem(place, JSON.stringify(value.value));
      } catch {
        // A value that is too large to be stored is lost at a reload, and only then.
        storage.removeItem(place);
      }
    }
  };
  const first = value.value;
  let timer: ReturnType<typeof setTimeout> | undefined;
  value.subscribe((next) => {
    if (next === first) return;
    isSaved = false;
    clearTimeout(timer);
    timer = setTimeout(save, 500);
  });
  addEventListener("pagehide", save);
  return value;
}

const ownDraft = kept("airlock-draft", blank);
const forkDraft = kept<ForkDraft>("airlock-fork", { ...blank, parent: undefined });
/** What was run in the playground of this browser, the newest first. */
export const runs = kept("airlock-runs", { list: [] as Run[] });

export function noteRun({ job_id: id, created_at: at }: SubmittedJob, code: string): void {
  const title = code.trim().slice(0, 80);
  runs.value = { list: [{ id, at, title }, ...runs.value.list].slice(0, mostRuns) };
}

const isFork = (): boolean => route.value.query.get("fork") !== null;

/** What stands in the playground: the fork that its address names, else the person's own program. */
export const draft = computed<Draft>(() => (isFork() ? forkDraft.value : ownDraft.value));

/** Files on their way to the service. */
export const uploading = signal<File[]>([]);

export function changeDraft(changes: Partial<Draft>): void {
  if (isFork()) forkDraft.value = { ...forkDraft.value, ...changes };
  else ownDraft.value = { ...ownDraft.value, ...changes };
}

/** Begins the fork with what its parent was given, unless it is being edited already. */
function beginFork(parent: string, given: Partial<Draft>): void {
  if (forkDraft.value.parent !== parent) forkDraft.value = { ...blank, ...given, parent };
}

/** The next fork begins anew, even if it has the same parent. */
export function forgetFork(): void {
  forkDraft.value = { ...blank, parent: undefined };
}

/** Uploads a file and adds it to the draft; one of the same name is replaced. */
export async function addFile(file: File): Promise<void> {
  const place: Signal<Draft> = isFork() ? forkDraft : ownDraft;
  uploading.value = [...uploading.value, file];
  try {
    const added = await files.upload(file.name, file);
    const others = place.value.files.filter(({ name }) => name !== added.name);
    place.value = { ...place.value, files: [...others, added] };
  } finally {
    uploading.value = uploading.value.filter((one) => one !== file);
  }
}

export function removeFile(name: string): void {
  const { files: added, without } = draft.value;
  changeDraft({
    files: added.filter((file) => file.name !== name),
    without: isFork() ? [...without, name] : without,
  });
}

/** The files of a fork's parent that the fork has too. */
export const keptFiles = (given: Artifact[], { files: added, without }: Draft): Artifact[] =>
  given.filter(({ name }) => !without.includes(name) && !added.some((file) => file.name === name));

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
  if (isFork) return api.forkJob({ id: parent, forkRequest: call.body as ForkRequest });
  const copies = await Promise.all(copied.map(({ name }) => copyInput(parent, name)));
  const files = [...copies, ...draft.value.files].map(({ name, file_id }) => ({ name, file_id }));
  const asyncSubmitRequest = { ...(call.body as AsyncSubmitRequest), files };
  // Without `Prefer: wait`, the answer is never a record.
  return (await api.executeAsync({ asyncSubmitRequest })) as SubmittedJob;
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
