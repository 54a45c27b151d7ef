import { effect, signal } from "@preact/signals";
import type { UploadedFile } from "../../typescript/src/generated.ts";
import { exampleCode, exampleInput } from "../model/example.ts";
import { files } from "./client.ts";

const place = "airlock-draft";

export interface Draft {
  code: string;
  input: string;
  jobType: string;
  /** One text, which is split as a shell does. */
  args: string;
  stdin: string;
  files: UploadedFile[];
}

function stored(): Draft {
  const example: Draft = {
    code: exampleCode,
    input: exampleInput,
    jobType: "default",
    args: "",
    stdin: "",
    files: [],
  };
  try {
    return { ...example, ...(JSON.parse(sessionStorage.getItem(place) ?? "{}") as Partial<Draft>) };
  } catch {
    return example;
  }
}

/** What stands in the playground; it survives a reload of the tab. */
export const draft = signal<Draft>(stored());

/** Files on their way to the service. */
export const uploading = signal<File[]>([]);

let timer: ReturnType<typeof setTimeout> | undefined;
effect(() => {
  const now = draft.value;
  clearTimeout(timer);
  // A draft that is too large to be stored is only lost at a reload.
  timer = setTimeout(() => {
    try {
      sessionStorage.setItem(place, JSON.stringify(now));
    } catch {
      sessionStorage.removeItem(place);
    }
  }, 500);
});

export function changeDraft(changes: Partial<Draft>): void {
  draft.value = { ...draft.value, ...changes };
}

/** Uploads a file and adds it to the draft; one of the same name is replaced. */
export async function addFile(file: File): Promise<void> {
  uploading.value = [...uploading.value, file];
  try {
    const added = await files.upload(file.name, file);
    const others = draft.value.files.filter(({ name }) => name !== added.name);
    changeDraft({ files: [...others, added] });
  } finally {
    uploading.value = uploading.value.filter((one) => one !== file);
  }
}

export function removeFile(id: string): void {
  changeDraft({ files: draft.value.files.filter(({ file_id }) => file_id !== id) });
}
