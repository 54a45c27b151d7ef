import { ends } from "./programs/ends.ts";
import { exceptions } from "./programs/exceptions.ts";
import { lastActs } from "./programs/last-acts.ts";
import { library } from "./programs/library.ts";
import { processes } from "./programs/processes.ts";
import { sources } from "./programs/sources.ts";
import { surroundings } from "./programs/surroundings.ts";

/** Programs that must have the same output and end in a sandbox as with python3 run by hand. */
export const programs: Readonly<Record<string, string | Uint8Array>> = {
  ...surroundings,
  ...exceptions,
  ...ends,
  ...lastActs,
  ...processes,
  ...library,
  ...sources,
};
