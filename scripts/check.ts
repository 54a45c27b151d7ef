import { runChecks } from "./checks.ts";
import { OperatorError, runMain } from "./operator-error.ts";

await runMain(async () => {
  if (!(await runChecks())) throw new OperatorError("not all checks passed, see above");
});
