import { ends } from "./programs/ends.ts";
import { exceptions } from "./programs/exceptions.ts";
import { library } from "./programs/library.ts";
import { processes } from "./programs/processes.ts";
import { sources } from "./programs/sources.ts";
import { surroundings } from "./programs/surroundings.ts";

/** Programs whose output and end must be the same in a sandbox as when python3 is run by hand. */
export const programs: Readonly<Record<string, string | Uint8Array>> = {
  ...surroundings,
  ...exceptions,
  ...ends,
  ...processes,
  ...library,
  ...sources,
};
