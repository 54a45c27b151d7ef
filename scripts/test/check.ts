import { OperatorError, runMain } from "../operate/command.ts";
import { runChecks } from "./checks.ts";

await runMain(async () => {
  if (!(await runChecks())) throw new OperatorError("not all checks passed, see above");
});
