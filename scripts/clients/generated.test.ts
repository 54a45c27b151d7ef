import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { clientDocument } from "./document.ts";
import { typescriptFile, typescriptText } from "./typescript.ts";

test("the generated part of the TypeScript client is up to date (npm run docs writes it)", async () => {
  const text = await typescriptText(await clientDocument());
  expect(readFileSync(typescriptFile, "utf8")).toBe(text);
});
