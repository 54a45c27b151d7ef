import { openAsBlob } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import type { DocsAsset } from "../deps.ts";

const folder = dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));

/** A file of the docs page, from the package that ships it. */
export async function docsAsset(name: DocsAsset): Promise<ReadableStream<Uint8Array>> {
  return (await openAsBlob(join(folder, name))).stream();
}
