import { openAsBlob } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import type { DocsAsset } from "../deps.ts";

const folder = dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));

/** Opens a file of the docs page in the package that ships it. */
export async function docsAsset(name: DocsAsset): Promise<ReadableStream<Uint8Array>> {
  return (await openAsBlob(join(folder, name))).stream();
}
