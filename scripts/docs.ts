import { writeFileSync } from "node:fs";
import { runMain } from "./command/operator-error.ts";
import { say } from "./command/say.ts";
import { configurationFile, configurationText } from "./docs/configuration.ts";
import { contractFile, contractText } from "./docs/contract.ts";

/** Writes the generated parts of docs/. */
await runMain(async () => {
  const pages = { [configurationFile]: configurationText(), [contractFile]: contractText() };
  for (const [file, text] of Object.entries(pages)) {
    writeFileSync(file, text);
    say(`wrote ${file}`);
  }
});
