import { writeFileSync } from "node:fs";
import { runMain, say } from "../operate/command.ts";
import { configurationFile, configurationText } from "./configuration.ts";
import { findHostileTests, hostileFile, hostileText } from "./test-titles.ts";

/** Writes the generated parts of docs/. */
await runMain(async () => {
  const pages = {
    [configurationFile]: configurationText(),
    [hostileFile]: hostileText(await findHostileTests()),
  };
  for (const [file, text] of Object.entries(pages)) {
    writeFileSync(file, text);
    say(`wrote ${file}`);
  }
});
