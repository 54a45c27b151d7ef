import { renameSync, writeFileSync } from "node:fs";
import { clientDocument, generatedFiles } from "./clients.ts";

for (const [file, text] of Object.entries(await generatedFiles(await clientDocument()))) {
  // Two commands may start at once: neither may see half a file.
  const part = `${file}.${process.pid}`;
  writeFileSync(part, text);
  renameSync(part, file);
}
