import { fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { build, type Plugin } from "esbuild";
import type { TestProject } from "vitest/node";
import { labels } from "../../agent/sandbox/sandbox.ts";
import { MOTHERS } from "../../agent/testing/backend.ts";
import { rawEngine } from "../../agent/testing/raw-engine.ts";
import { bundleOf, programOf, PROGRAMS, WORKER_BUNDLE } from "../../shared/testing/program.ts";
import { buildConsole } from "../setup/build-console.ts";

/** The programs that tests start often. */
const programs = [
  "agent/main.ts",
  "agent/testing/doomed-agent.ts",
  "api/node.ts",
  "clients/cli/main.ts",
  "scripts/operate/access.ts",
  "scripts/operate/database.ts",
  "scripts/lab/bench/main.ts",
  "scripts/setup/main.ts",
  "scripts/lab/soak/main.ts",
  "scripts/start/main.ts",
];

/** Packages that find native code or files of their own beside them. */
const external = ["cpu-features", "libsql", "ssh2", "swagger-ui-dist", "vite"];

/** In the tree, where Node finds those packages. */
const folder = resolve("node_modules/.cache/airlock-tests");

/** Vitest calls it once for each project but that of the unit tier, and what it returns at the end. */
export default async function setUp({ name }: TestProject): Promise<() => Promise<void>> {
  const removeBundle = await bundlePrograms();
  // One mother forks the jobs of all test files that a process runs. Vitest tells no process that its last file has
  // ended, so the mothers are removed at the end of the run.
  const agentId = (process.env[MOTHERS] ??= randomUUID());
  return async () => {
    removeBundle?.();
    if (name === "service") return;
    const filters = { label: [`${labels.agentId}=${agentId}`] };
    for (const { Id } of await rawEngine.listContainers({ all: true, filters })) {
      await rawEngine.getContainer(Id).remove({ force: true, v: true });
    }
  };
}

/**
 * Bundles the programs, and has Node compile them, once per run: the API then takes 0.3 s of CPU
 * time to start instead of 1.6 s, and tests start it some 200 times.
 */
async function bundlePrograms(): Promise<(() => void) | undefined> {
  if (process.env[PROGRAMS] !== undefined) return undefined;
  process.env[PROGRAMS] = folder;
  // That of scripts/run: the bundles have their own.
  delete process.env["NODE_COMPILE_CACHE"];
  const worker = mkdtempSync(join(tmpdir(), "airlock-bundle-"));
  process.env[WORKER_BUNDLE] = worker;
  await buildConsole();
  const require = `import { createRequire as requireFrom } from "node:module"; const require = requireFrom(${JSON.stringify(import.meta.url)});`;
  const { outputFiles } = await build({
    entryPoints: programs,
    outbase: ".",
    outdir: folder,
    bundle: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node24",
    external,
    plugins: [keepPlaces],
    banner: { js: require },
    outExtension: { ".js": ".bundle.mjs" },
    logLevel: "error",
  });
  for (const { path, text } of outputFiles) replace(path, text);
  for (const source of programs) replace(join(folder, bundleOf(source)), loader(source));
  await compile();
  return () => rmSync(worker, { recursive: true });
}

/** Sources find their files beside them, wherever the bundle is. */
const keepPlaces: Plugin = {
  name: "keep-places",
  setup(build) {
    build.onLoad({ filter: /\.ts$/ }, async ({ path }) => ({
      loader: "ts",
      contents: (await readFile(path, "utf8"))
        .replaceAll("import.meta.url", JSON.stringify(pathToFileURL(path).href))
        .replaceAll("import.meta.dirname", JSON.stringify(dirname(path))),
    }));
  },
};

/** Node stores what it has compiled of the modules that are imported after the first call. */
function loader(source: string): string {
  const name = bundleOf(source).replace(/.*\//, "").replace(".mjs", ".bundle.mjs");
  return `import { enableCompileCache } from "node:module";
enableCompileCache(${JSON.stringify(join(folder, "compiled"))});
await import("./${name}");
`;
}

/** Another run may be reading the file. */
function replace(path: string, text: string): void {
  if (existsSync(path) && readFileSync(path, "utf8") === text) return;
  mkdirSync(dirname(path), { recursive: true });
  const part = `${path}.${process.pid}`;
  writeFileSync(part, text);
  renameSync(part, path);
}

/** Node writes the cache when a program ends by itself; most tests kill it. */
async function compile(): Promise<void> {
  const data = mkdtempSync(join(tmpdir(), "airlock-test-"));
  const run = async (source: string, args: string[]): Promise<void> => {
    const { entry } = programOf(source);
    const child = fork(entry, args, {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      env: { AIRLOCK_DATA_DIR: data, AIRLOCK_PORT: "0", AIRLOCK_LOG_LEVEL: "error" },
    });
    child.once("message", () => child.kill("SIGTERM"));
    const [code] = (await once(child, "exit")) as [number | null];
    if (code !== 0) throw new Error(`${source} ended with ${code}`);
  };
  await Promise.all([run("api/node.ts", []), run("agent/main.ts", ["--help"])]);
  rmSync(data, { recursive: true });
}
