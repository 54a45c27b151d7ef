import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateSource } from "oazapfts";
import type { OpenApiDocument } from "../../api/testing/openapi-document.ts";

export const typescriptFile = "clients/typescript/src/generated.ts";

/** Types and operations of the TypeScript client. */
export async function typescriptText(document: OpenApiDocument): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-clients-"));
  const file = join(folder, "openapi.json");
  writeFileSync(file, JSON.stringify(document));
  try {
    const text = await generateSource(file, {
      argumentStyle: "object",
      allSchemas: true,
      unionUndefined: true,
      useUnknown: true,
    });
    return `// Written by scripts/run. It does not compile with exactOptionalPropertyTypes.\n// @ts-nocheck\n${text}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
