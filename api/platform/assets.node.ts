import { existsSync, openAsBlob } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const swagger = dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));
const built = fileURLToPath(new URL("../../dist/assets/", import.meta.url));

/** Opens a file of a page: of the docs page in the package that ships it, of the console where it was built. */
export async function asset(name: string): Promise<ReadableStream<Uint8Array> | undefined> {
  const [page, ...rest] = name.split("/");
  const file = page === "docs" ? join(swagger, ...rest) : join(built, name);
  return existsSync(file) ? (await openAsBlob(file)).stream() : undefined;
}
