import { renameSync, writeFileSync } from "node:fs";
import { clientDocument, typescriptFile, typescriptText } from "./clients.ts";

// Two commands may start at once: neither may see half a file.
const part = `${typescriptFile}.${process.pid}`;
writeFileSync(part, await typescriptText(await clientDocument()));
renameSync(part, typescriptFile);
