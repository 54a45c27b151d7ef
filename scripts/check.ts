import { runChecks } from "./test/checks.ts";
import { OperatorError, runMain } from "./command/operator-error.ts";

await runMain(async () => {
  if (!(await runChecks())) throw new OperatorError("not all checks passed, see above");
});
