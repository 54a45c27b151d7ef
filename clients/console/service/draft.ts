import { computed, type Signal, signal } from "@preact/signals";
import type { UploadedFile } from "../../typescript/src/generated.ts";
import { exampleCode, exampleInput } from "../model/example.ts";
import { files } from "./client.ts";
import { route } from "./location.ts";

export interface Draft {
  code: string;
  input: string;
  jobType: string;
  /** One text, which is split as a shell does. */
  args: string;
  stdin: string;
  /** Seconds, as typed; empty: that of the job type or, for a fork, of its parent. */
  timeout: string;
  files: UploadedFile[];
}

/** The parent, and what was changed in its code and in what it was given. */
interface ForkDraft extends Draft {
  parent: string | undefined;
}

const blank: Draft = {
  code: exampleCode,
  input: exampleInput,
  jobType: "default",
  args: "",
  stdin: "",
  timeout: "",
  files: [],
};

/** A value that survives a reload of the tab. */
function kept<T extends object>(place: string, start: T): Signal<T> {
  const value = signal<T>(start);
  try {
    value.value = { ...start, ...(JSON.parse(sessionStorage.getItem(place) ?? "{}") as T) };
  } catch {
    // Something else is stored there.
  }
  const save = (): void => {
    try {
      sessionStorage.setItem(place, JSON.stringify(value.value));
    } catch {
      // A draft that is too large to be stored is only lost at a reload.
      sessionStorage.removeItem(place);
    }
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  value.subscribe(() => {
    clearTimeout(timer);
    timer = setTimeout(save, 500);
  });
  addEventListener("pagehide", save);
  return value;
}

const own = kept("airlock-draft", blank);
const fork = kept<ForkDraft>("airlock-fork", { ...blank, parent: undefined });
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

/** Uploads a file and adds it to the person's own program; one of the same name is replaced. */
export async function addFile(file: File): Promise<void> {
  uploading.value = [...uploading.value, file];
  try {
    const added = await files.upload(file.name, file);
    const others = own.value.files.filter(({ name }) => name !== added.name);
    own.value = { ...own.value, files: [...others, added] };
  } finally {
    uploading.value = uploading.value.filter((one) => one !== file);
  }
}

export function removeFile(id: string): void {
  own.value = { ...own.value, files: own.value.files.filter(({ file_id }) => file_id !== id) };
}
