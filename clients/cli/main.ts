import packageJson from "./package.json" with { type: "json" };
import { exitCodeOf, explainFailure } from "./src/exit.ts";
import { endWithItsReader } from "./src/interrupt.ts";
import { useProxies } from "./src/proxy.ts";
import { createProgram } from "./program.ts";

endWithItsReader();
try {
  useProxies(process.env);
  await createProgram(packageJson.version).parseAsync();
} catch (error) {
  process.stderr.write(`airlock: ${explainFailure(error)}\n`);
  process.exitCode = exitCodeOf(error);
}
