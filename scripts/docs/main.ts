import { writeFileSync } from "node:fs";
import { runMain, say } from "../operate/command.ts";
import {
  clientDocument,
  pythonFile,
  pythonProblemsFile,
  pythonProblemsText,
  pythonText,
} from "./clients.ts";
import { configurationFile, configurationText } from "./configuration.ts";
import { findHostileTests, hostileFile, hostileText } from "./hostile.ts";

/** Writes the generated parts of docs/ and of the Python client. */
await runMain(async () => {
  const document = await clientDocument();
  const pages = {
    [configurationFile]: configurationText(),
    [hostileFile]: hostileText(await findHostileTests()),
    [pythonFile]: pythonText(document),
    [pythonProblemsFile]: pythonProblemsText(document),
  };
  for (const [file, text] of Object.entries(pages)) {
    writeFileSync(file, text);
    say(`wrote ${file}`);
  }
});
