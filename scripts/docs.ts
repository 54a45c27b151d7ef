import { writeFileSync } from "node:fs";
import { clientDocument } from "./clients/document.ts";
import {
  pythonFile,
  pythonProblemsFile,
  pythonProblemsText,
  pythonText,
} from "./clients/python.ts";
import { runMain } from "./command/operator-error.ts";
import { say } from "./command/say.ts";
import { configurationFile, configurationText } from "./docs/configuration.ts";

/** Writes the generated parts of docs/ and of the Python client. */
await runMain(async () => {
  const document = await clientDocument();
  const pages = {
    [configurationFile]: configurationText(),
    [pythonFile]: pythonText(document),
    [pythonProblemsFile]: pythonProblemsText(document),
  };
  for (const [file, text] of Object.entries(pages)) {
    writeFileSync(file, text);
    say(`wrote ${file}`);
  }
});
