import { writeFileSync } from "node:fs";
import { runMain } from "./command/operator-error.ts";
import { say } from "./command/say.ts";
import { configurationFile, configurationText } from "./docs/configuration.ts";

/** Writes the generated parts of docs/. */
await runMain(async () => {
  writeFileSync(configurationFile, configurationText());
  say(`wrote ${configurationFile}`);
});
