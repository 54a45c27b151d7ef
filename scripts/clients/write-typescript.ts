import { renameSync, writeFileSync } from "node:fs";
import { clientDocument } from "./document.ts";
import { typescriptFile, typescriptText } from "./typescript.ts";

// Two commands may start at once: neither may see half a file.
const part = `${typescriptFile}.${process.pid}`;
writeFileSync(part, await typescriptText(await clientDocument()));
renameSync(part, typescriptFile);
