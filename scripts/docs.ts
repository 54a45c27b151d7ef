import { writeFileSync } from "node:fs";
import { runMain } from "./command/operator-error.ts";
import { say } from "./command/say.ts";
import { configurationFile, configurationText } from "./docs/configuration.ts";

/** Brings what is generated in docs/ up to date. */
await runMain(async () => {
  writeFileSync(configurationFile, configurationText());
  say(`wrote ${configurationFile}`);
});
