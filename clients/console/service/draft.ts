import { computed, type Signal, signal } from "@preact/signals";
import type { SubmittedJob, UploadedFile } from "../../typescript/src/generated.ts";
import { exampleCode, exampleInput } from "../model/example.ts";
import { files } from "./client.ts";
import type { Artifact } from "./records.ts";
import { route } from "./location.ts";

export interface Draft {
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
export interface Run {
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

const own = kept("airlock-draft", blank);
const fork = kept<ForkDraft>("airlock-fork", { ...blank, parent: undefined });
/** What was run in the playground of this browser, the newest first. */
export const runs = kept("airlock-runs", { list: [] as Run[] });

export function noteRun({ job_id: id, created_at: at }: SubmittedJob, code: string): void {
  const title = code.trim().slice(0, 80);
  runs.value = { list: [{ id, at, title }, ...runs.value.list].slice(0, mostRuns) };
}

const isFork = (): boolean => route.value.query.get("fork") !== null;

/** What stands in the playground: the fork that its address names, else the person's own program. */
export const draft = computed<Draft>(() => (isFork() ? fork.value : own.value));

/** Files on their way to the service. */
export const uploading = signal<File[]>([]);

export function changeDraft(changes: Partial<Draft>): void {
  if (isFork()) fork.value = { ...fork.value, ...changes };
  else own.value = { ...own.value, ...changes };
}

/** Begins the fork with what its parent was given, unless it is being edited already. */
export function beginFork(parent: string, given: Partial<Draft>): void {
  if (fork.value.parent !== parent) fork.value = { ...blank, ...given, parent };
}

/** The next fork begins anew, even if it has the same parent. */
export function forgetFork(): void {
  fork.value = { ...blank, parent: undefined };
}

/** Uploads a file and adds it to the draft; one of the same name is replaced. */
export async function addFile(file: File): Promise<void> {
  const place: Signal<Draft> = isFork() ? fork : own;
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
