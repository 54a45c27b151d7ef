import { execFileSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createServer, type RequestListener } from "node:http";
import net from "node:net";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { loadConfig } from "../../shared/config/config.ts";
import { listen } from "../../shared/testing/http.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { OperatorError } from "../operate/command.ts";
import {
  agentName,
  agentToken,
  checkAddress,
  localUrl,
  parseStartOptions,
  startHelp,
} from "./options.ts";
import { selfCheck, timeoutsFor } from "./self-check.ts";

test("options become AIRLOCK_<KEY> variables", () => {
  const args = ["--host", "::1", "--port=9000", "--data-dir", "/d", "-v", "--max-workers", "2"];
  expect(parseStartOptions(args, { AIRLOCK_PORT: "1", HOME: "/h" })).toEqual({
    help: false,
    inContainer: false,
    env: {
      AIRLOCK_HOST: "::1",
      AIRLOCK_PORT: "9000",
      AIRLOCK_DATA_DIR: "/d",
      AIRLOCK_LOG_LEVEL: "debug",
      AIRLOCK_MAX_WORKERS: "2",
      HOME: "/h",
    },
  });
});

test("no option sets no variable", () => {
  expect(parseStartOptions([], {}).env).toEqual({});
});

test("in a container it listens everywhere without keys, unless the environment says otherwise", () => {
  const args = ["--in-container"];
  expect(parseStartOptions(args, {}).env).toEqual({
    AIRLOCK_HOST: "0.0.0.0",
    AIRLOCK_ALLOW_UNAUTHENTICATED_NETWORK_ACCESS: "true",
    AIRLOCK_ALLOWED_HOSTS: "localhost",
  });
  const own = {
    AIRLOCK_HOST: "::",
    AIRLOCK_ALLOW_UNAUTHENTICATED_NETWORK_ACCESS: "false",
    AIRLOCK_ALLOWED_HOSTS: "airlock.example",
  };
  expect(parseStartOptions(args, own).env).toEqual(own);
});

test("an unknown option is refused, with a way to the list", () => {
  expect(() => parseStartOptions(["--prot", "1"], {})).toThrow(/--prot[^]*npm start -- --help/);
});

test("the help names the options and the configuration keys", () => {
  expect(startHelp()).toContain("--data-dir");
  expect(startHelp()).toContain("AIRLOCK_<KEY>");
  expect(startHelp()).toMatch(/max_workers .*\[4\]/);
});

test("a free port passes, a taken one is named", async () => {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await expect(checkAddress("127.0.0.1", port)).rejects.toThrow(
    `port ${port} on 127.0.0.1 is taken`,
  );
  server.close();
  await once(server, "close");
  await expect(checkAddress("127.0.0.1", port)).resolves.toBeUndefined();
});

test("an address of another machine is refused", async () => {
  await expect(checkAddress("192.0.2.1", 0)).rejects.toThrow("is not an address of this machine");
});

test.each([
  ["http://0.0.0.0:8080", "http://127.0.0.1:8080"],
  ["http://[::]:8080", "http://[::1]:8080"],
  ["http://192.0.2.1:8080", "http://192.0.2.1:8080"],
])("an API that listens at %s is reached at %s", (listening, local) => {
  expect(localUrl(listening)).toBe(local);
});

describe("agent token", () => {
  let dir: string;

  beforeEach(() => {
    dir = tempFolder();
  });

  test("makes 32 random bytes once and keeps them private", () => {
    const dataDir = join(dir, "deep/data");
    const token = agentToken(dataDir);
    expect(token).toMatch(/^[0-9a-f]{64}$/);
    expect(agentToken(dataDir)).toBe(token);
    expect(statSync(dataDir).mode & 0o777).toBe(0o700);
    expect(statSync(join(dataDir, "agent-token")).mode & 0o777).toBe(0o600);
    expect(readdirSync(dataDir)).toEqual(["agent-token"]);
  });

  test("two folders have two tokens, and two names for their agents", () => {
    const [a, b] = [agentToken(join(dir, "a")), agentToken(join(dir, "b"))];
    expect(a).not.toBe(b);
    expect(agentName(a)).not.toBe(agentName(b));
    expect(agentName(a)).toBe(agentName(a));
  });

  test("reports that no folder can be made", () => {
    expect(() => agentToken("/proc/airlock/data")).toThrow(
      /^cannot make \/proc\/airlock: \/proc accepts no folders$/,
    );
  });
});

const config = loadConfig({}, {});
const timeouts = { answerMs: 10_000, engineMs: 10_000, pauseMs: 1 };

test("a first job that is not answered says so, and where to look", async () => {
  const url = await urlOf(() => {});
  expect(await failure(selfCheck(url, config, { ...timeouts, answerMs: 50 }))).toBe(
    "the self-check got no answer within 0.05 s.\nThe messages above say what it waits for; if this machine was only slow, run npm start again.",
  );
});

test("a first job whose type may have to be built has as much more time", () => {
  const { answerMs } = timeoutsFor(config);
  const withDefault = loadConfig({ job_types: { default: {} }, build_timeout: 60 }, {});
  expect(timeoutsFor(withDefault)).toMatchObject({ answerMs: answerMs + 60_000 });
});

test("a refused first job is sent again until the agent's engine works", async () => {
  const api = await startApi(({ looks }) => ({ works: looks > 3, runs: looks > 3 }));
  await selfCheck(api.url, config, timeouts);
  expect(api.seen).toEqual({ looks: 4, jobs: 2, builds: 0 });
});

test("an engine that fails while the first job waits is waited for, too", async () => {
  const api = await startApi(({ looks, jobs }) => ({ works: looks !== 2, runs: jobs > 2 }));
  await selfCheck(api.url, config, timeouts);
  expect(api.seen).toEqual({ looks: 3, jobs: 3, builds: 0 });
});

test("a first job that is refused while the engine works lacks its image, which is built", async () => {
  const api = await startApi(({ builds }) => ({ works: true, runs: builds > 0 }));
  await selfCheck(api.url, config, timeouts);
  expect(api.seen).toEqual({ looks: 2, jobs: 3, builds: 1 });
});

test("an engine that never works ends the self-check without a build", async () => {
  const api = await startApi(() => ({ works: false, runs: false }));
  expect(await failure(selfCheck(api.url, config, { ...timeouts, engineMs: 50 }))).toBe(
    "the agent's container engine did not work within 0.05 s; the first job was answered HTTP 503: refused\nThe messages above say why; start or mend the engine, then run npm start again.",
  );
  expect(api.seen).toMatchObject({ jobs: 1, builds: 0 });
});

test("with managed keys alone there is no self-check, which has no key", async () => {
  const api = await startApi(() => ({ works: true, runs: true }));
  const closed = loadConfig({ api_auth_enabled: true }, {});
  await selfCheck(api.url, closed, timeouts);
  expect(api.seen.jobs).toBe(0);
  const key = "operator-key-0123456789";
  await selfCheck(
    api.url,
    loadConfig({ api_auth_enabled: true, operator_keys: [key] }, {}),
    timeouts,
  );
  expect(api.seen.jobs).toBe(1);
});

type Seen = { looks: number; jobs: number; builds: number };

/** An API whose engine works and whose jobs run as `state` says after what it has been asked. */
async function startApi(
  state: (seen: Seen) => { works: boolean; runs: boolean },
): Promise<{ url: string; seen: Seen }> {
  const seen = { looks: 0, jobs: 0, builds: 0 };
  const url = await urlOf(({ url: path }, response) => {
    if (path === "/health") {
      seen.looks += 1;
      response.end(JSON.stringify({ status: state(seen).works ? "healthy" : "degraded" }));
      return;
    }
    if (path === "/execute") {
      seen.jobs += 1;
      if (state(seen).runs)
        response.end(JSON.stringify({ success: true, stdout: "", output: { sum: 42 } }));
      else response.writeHead(503).end("refused");
      return;
    }
    seen.builds += 1;
    response.end("{}");
  });
  return { url, seen };
}

async function urlOf(answer: RequestListener): Promise<string> {
  const server = await listen(createServer(answer));
  onTestFinished(() => server[Symbol.asyncDispose]());
  return server.url;
}

async function failure(check: Promise<void>): Promise<string> {
  const error = await check.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(OperatorError);
  return (error as Error).message;
}

/** A folder with `scripts/run` alone, and these other folders and empty files. */
function projectWith(folders: readonly string[], files: readonly string[]): string {
  const folder = tempFolder();
  for (const name of ["scripts", ...folders]) mkdirSync(join(folder, name), { recursive: true });
  for (const name of files) writeFileSync(join(folder, name), "");
  copyFileSync("scripts/run", join(folder, "scripts/run"));
  return folder;
}

/** Stands for the Node that `npm ci` installs. */
const pinned = "#!/bin/sh\necho pinned >&2\n";

/** Runs `scripts/run` where the machine's Node says that it is new enough, or not. Returns which Node npm ran on. */
function install({ isNewEnough }: { isNewEnough: boolean }): string[] {
  const folder = projectWith(["path"], ["package-lock.json"]);
  write(join(folder, "path/node"), `#!/bin/sh\nexit ${isNewEnough ? 0 : 1}\n`);
  const npm = `#!/bin/sh
if grep -q pinned "$(command -v node)"; then which=pinned; else which=machine; fi
echo "$which: npm $*" >>${folder}/seen
mkdir -p node_modules/.bin
printf '${pinned.replaceAll("\n", String.raw`\n`)}' >node_modules/.bin/node
chmod +x node_modules/.bin/node
`;
  write(join(folder, "path/npm"), npm);
  execFileSync("sh", [join(folder, "scripts/run"), "x.ts"], {
    env: { PATH: `${join(folder, "path")}:/usr/bin:/bin` },
    stdio: "ignore",
  });
  return readFileSync(join(folder, "seen"), "utf8").trim().split("\n");
}

function write(file: string, text: string): void {
  writeFileSync(file, text);
  chmodSync(file, 0o755);
}

test("npm installs the dependencies once where its Node is new enough", () => {
  expect(install({ isNewEnough: true })).toEqual(["machine: npm ci --no-progress"]);
});

test("where the machine's Node is too old, npm runs again on the pinned one, for the packages that it left out", () => {
  expect(install({ isNewEnough: false })).toEqual([
    "machine: npm ci --no-progress --omit=dev",
    "pinned: npm ci --no-progress",
  ]);
});

const generated = [
  ["TypeScript", "clients/typescript/src/generated.ts"],
  ["Python", "clients/python/src/airlock/types.py"],
  ["Python", "clients/python/src/airlock/problems.py"],
] as const;

test.each(generated)(
  "the generated part of the %s client is made if it is missing, and again if its sources are newer",
  (_, missing) => {
    const [made, source] = [generated.map(([, file]) => file), "api/files/routes.ts"];
    const others = made.filter((file) => file !== missing);
    const folder = projectWith(
      ["node_modules/.bin", ...[...made, source].map((file) => dirname(file))],
      ["package-lock.json", "node_modules/.package-lock.json", source, ...others],
    );
    const node = join(folder, "node_modules/.bin/node");
    const touch = `touch ${made.join(" ")}`;
    write(node, `#!/bin/sh\ncase $* in *write-clients.ts) echo made; ${touch} ;; esac\n`);
    const run = () => execFileSync("sh", [join(folder, "scripts/run"), "x.ts"], { stdio: "pipe" });
    expect([run(), run()].map(String)).toEqual(["made\n", ""]);
    utimesSync(join(folder, source), Date.now() / 1000 + 1, Date.now() / 1000 + 1);
    expect(String(run())).toBe("made\n");
  },
);

test.each([
  ["v22.19.0", "--max-semi-space-size=8 --import tsx x.ts y"],
  ["v24.21.0", "--max-semi-space-size=8 x.ts y"],
])(
  "Node %s gets what it needs to run TypeScript, and a folder for compiled code",
  (version, args) => {
    const folder = projectWith(
      ["node_modules/.bin"],
      ["package-lock.json", "node_modules/.package-lock.json"],
    );
    const said = `case $1 in --version) echo ${version} ;; *) echo "$*; $NODE_COMPILE_CACHE" ;; esac`;
    write(join(folder, "node_modules/.bin/node"), `#!/bin/sh\n${said}\n`);
    const run = (env: NodeJS.ProcessEnv) =>
      String(execFileSync("sh", [join(folder, "scripts/run"), "x.ts", "y"], { env }));
    const { PATH } = process.env;
    expect(run({ PATH })).toBe(`${args}; ${folder}/node_modules/.cache/airlock\n`);
    expect(run({ PATH, NODE_COMPILE_CACHE: "/x" })).toBe(`${args}; /x\n`);
  },
);

test("what runs in the image is there: .dockerignore lets its files of testing folders through", async () => {
  const { metafile } = await build({
    entryPoints: [
      "api/node.ts",
      "agent/main.ts",
      "scripts/start/main.ts",
      "scripts/docs/write-clients.ts",
      "scripts/setup/console.ts",
    ],
    bundle: true,
    write: false,
    metafile: true,
    platform: "node",
    format: "esm",
    packages: "external",
    outdir: ".",
    logLevel: "error",
  });
  const needed = Object.keys(metafile.inputs).filter((file) => file.includes("/testing/"));
  const allowed = readFileSync(".dockerignore", "utf8").match(/(?<=^!).*\/testing\/.*$/gm);
  expect(needed.sort()).toEqual(allowed?.sort());
});
