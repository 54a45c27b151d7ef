import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
/** Leaves this process with what is reachable alone. */
export const collectGarbage = runInNewContext("gc") as () => void;
