import { JobRefusal } from "../policy/refusal.ts";
import type { CallFile } from "../sandbox/job.ts";

/** Files that calls bring. Those in /input stay, and use the memory of the session. */
export interface BroughtFiles {
  /** Takes the files of a call, all or none. @throws JobRefusal if they have no room. */
  readonly admit: (files: readonly CallFile[], mostBytes: number) => void;
}

export function createBroughtFiles(mostInputs = 1000): BroughtFiles {
  /** Bytes of the files in /input by name. */
  let inputs = new Map<string, number>();
  return {
    admit(files, mostBytes) {
      const all = new Map(inputs);
      let bytes = 0;
      for (const { name, to, sizeBytes } of files) {
        if (to === "work") {
          bytes += sizeBytes;
          continue;
        }
        const other = [...all.keys()].find((each) => isInTheWay(each, name));
        if (other !== undefined) throw inTheWay(name, other);
        all.set(name, sizeBytes);
      }
      if (all.size > mostInputs) throw tooMany(mostInputs);
      for (const each of all.values()) bytes += each;
      if (bytes > mostBytes) throw tooLarge;
      inputs = all;
    },
  };
}

/** Whether one is a folder of the other. */
const isInTheWay = (one: string, other: string): boolean =>
  one.startsWith(`${other}/`) || other.startsWith(`${one}/`);

const refusal = (message: string): JobRefusal => new JobRefusal("config_error", message);

const inTheWay = (name: string, other: string): JobRefusal =>
  refusal(
    `The session has ${JSON.stringify(other)} in /input, so there can be no ${JSON.stringify(name)}.`,
  );

const tooMany = (most: number): JobRefusal =>
  refusal(`The calls of the session have brought more than ${most} files to /input.`);

const tooLarge = refusal(
  "The files that the calls of the session have brought have more bytes than a quarter of its memory limit.",
);
