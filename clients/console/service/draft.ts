import { effect, signal } from "@preact/signals";
import { exampleCode, exampleInput } from "../model/example.ts";

const place = "airlock-draft";

interface Draft {
  code: string;
  input: string;
  jobType: string;
}

function stored(): Draft {
  const example = { code: exampleCode, input: exampleInput, jobType: "default" };
  try {
    return { ...example, ...(JSON.parse(sessionStorage.getItem(place) ?? "{}") as Partial<Draft>) };
  } catch {
    return example;
  }
}

/** What stands in the playground; it survives a reload of the tab. */
export const draft = signal<Draft>(stored());

let timer: ReturnType<typeof setTimeout> | undefined;
effect(() => {
  const text = JSON.stringify(draft.value);
  clearTimeout(timer);
  // A draft that is too large to be stored is only lost at a reload.
  timer = setTimeout(() => {
    try {
      sessionStorage.setItem(place, text);
    } catch {
      sessionStorage.removeItem(place);
    }
  }, 500);
});

export function changeDraft(changes: Partial<Draft>): void {
  draft.value = { ...draft.value, ...changes };
}
