import { writeFileSync } from "node:fs";
import { tellStatements } from "../../../api/testing/tell-statements.ts";

/** Loaded into the API by the bench: keeps the number of statements that it has run in the file that this names. */
const file = process.env["BENCH_STATEMENTS"];
if (file !== undefined && process.argv.some((word) => word.endsWith("api/node.ts"))) {
  let count = 0;
  let told = 0;
  tellStatements(() => (count += 1));
  setInterval(() => {
    if (count !== told) writeFileSync(file, String(count));
    told = count;
  }, 50).unref();
}
