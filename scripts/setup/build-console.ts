import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
/** What the API serves, and the assets folder of Workers. */
const folder = join(root, "dist/assets");
const stampFile = "stamp";
const sources =
  "{clients/{console,typescript}/**/*.{ts,tsx,css,html,svg},package-lock.json,scripts/setup/build-console.ts}";
const docsAssets = ["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"];

/** Builds the console and gathers the files of the docs page, unless both are there from the same sources. */
export async function buildConsole(): Promise<"built" | "current"> {
  const stamp = hashSources();
  const file = join(folder, stampFile);
  if (existsSync(file) && readFileSync(file, "utf8") === stamp) return "current";
  const part = `${folder}.${process.pid}`;
  const { build } = await import("vite");
  await build({
    root: join(root, "clients/console"),
    base: "/console/",
    configFile: false,
    logLevel: "warn",
    publicDir: false,
    build: {
      outDir: join(part, "console"),
      emptyOutDir: true,
      target: "es2023",
      // A script that is written into the page would break its policy.
      modulePreload: { polyfill: false },
      assetsInlineLimit: 0,
      chunkSizeWarningLimit: 600,
      // On a busy machine, npm start would explain to its reader what a plug-in of the build took.
      rolldownOptions: { checks: { bundlerTimings: false } },
    },
  });
  // Every browser that the console is made for takes their woff2.
  const fonts = globSync(join(part, "console/assets/*.woff"));
  for (const name of fonts) rmSync(name);
  const swagger = dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));
  mkdirSync(join(part, "docs"));
  for (const name of docsAssets) cpSync(join(swagger, name), join(part, "docs", name));
  writeFileSync(join(part, stampFile), stamp);
  replaceFolder(part);
  return "built";
}

function hashSources(): string {
  const hash = createHash("sha256");
  for (const name of globSync(sources, { cwd: root }).toSorted()) {
    if (!name.includes(".test.")) hash.update(name).update(readFileSync(join(root, name)));
  }
  return hash.digest("hex");
}

/** A running process may still serve the old files, which it opens by path. */
function replaceFolder(part: string): void {
  const old = `${part}.old`;
  if (existsSync(folder)) renameSync(folder, old);
  renameSync(part, folder);
  rmSync(old, { recursive: true, force: true });
}
