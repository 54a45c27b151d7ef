import type { Python } from "./find-python.ts";
import { cellRows } from "./cell-rows.ts";
import { bytecodeRows } from "./bytecode-rows.ts";
import { cpuCountRow } from "./cpu-count-row.ts";
import { toolRows } from "./tool-rows.ts";
import { packagesRow } from "./packages-row.ts";
import { sessionRows } from "./session-rows.ts";
import { semanticsRows } from "./semantics-rows.ts";

/** What must hold under each Python. */
export function pythonRows(python: () => Python): void {
  semanticsRows(python);
  cellRows(python);
  toolRows(python);
  sessionRows(python);
  bytecodeRows(python);
  cpuCountRow(python);
  packagesRow(python);
}
