import packageJson from "./package.json" with { type: "json" };
import { exitCodeOf, explainFailure } from "./src/exit.ts";
import { createProgram } from "./program.ts";

// `airlock ps | head -1` closes the pipe early.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  process.exit(error.code === "EPIPE" ? 0 : 1);
});

try {
  await createProgram(packageJson.version).parseAsync();
} catch (error) {
  process.stderr.write(`airlock: ${explainFailure(error)}\n`);
  process.exitCode = exitCodeOf(error);
}
