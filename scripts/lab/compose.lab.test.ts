import { execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { testEngine } from "../../agent/testing/engine.ts";
import {
  containersOf,
  rawEngine,
  removeContainersOf,
  removeImages,
  removeVolume,
  shell,
} from "../../agent/testing/raw-engine.ts";
import { openBrowser, openPage } from "../../api/testing/browser.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { waitUntil } from "../../shared/testing/test-file.ts";
import type { ExecutionRecord, SyncResult } from "../../shared/wire/executions.ts";
import type { Health } from "../../shared/wire/health.ts";
import { composeCommand } from "../setup/tools.ts";
import { agentName } from "../start/options.ts";
import { makeServiceBase } from "../testing/machine.ts";
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
  const built = ["-f", "compose.yaml", "-f", "compose.build.yaml"];

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
    await compose(...built, "up", "--build", "--detach");
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

  test("compose.yaml alone pulls its image", async () => {
    const nowhere = {
      ...env,
      AIRLOCK_IMAGE: "127.0.0.1:1/airlock",
      COMPOSE_PROJECT_NAME: `${name}-2`,
    };
    const [program = "", ...rest] = composeCommand() ?? [];
    const run = promisify(execFile)(program, [...rest, "pull", "api"], {
      cwd: project,
      env: nowhere,
    });
    await expect(run).rejects.toThrow("127.0.0.1:1/");
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

  describe("one container", needs("docker", "curl and jq", "chromium"), () => {
    const volume = `${name}-one`;
    let at: string;
    let command: string;
    beforeAll(async () => {
      const port = await reservePort();
      at = `http://127.0.0.1:${port}`;
      command = readmeCommand(port, volume);
    });
    afterAll(async () => {
      for (const id of await idsOf()) await rawEngine.getContainer(id).remove({ force: true });
      await removeVolume(volume);
    });

    const idsOf = async () =>
      (await rawEngine.listContainers({ filters: { volume: [volume] } })).map(({ Id }) => Id);

    /** Runs the command until it is ready; returns the container's id and all that it has said. */
    async function start(): Promise<{ id: string; said: string; ended: Promise<unknown> }> {
      const child = spawn("sh", ["-c", command], { stdio: ["ignore", "pipe", "pipe"] });
      const ended = once(child, "close");
      let said = "";
      for (const stream of [child.stdout, child.stderr])
        stream.on("data", (chunk: Buffer) => (said += chunk.toString()));
      await waitUntil("it is ready", () => {
        if (child.exitCode !== null) throw new Error(`it ended: ${said}`);
        return said.includes("ready in");
      });
      const [id = ""] = await idsOf();
      return { id, said, ended };
    }

    /** As a caller without Node asks. */
    async function curl<T>(path: string, body?: object): Promise<T> {
      const json = ["-H", "Content-Type: application/json", "-d", JSON.stringify(body)];
      const args = ["-sS", at + path, ...(body ? json : [])];
      return JSON.parse((await promisify(execFile)("curl", args)).stdout) as T;
    }

    const record = (of: string) => curl<ExecutionRecord>(`/executions/${of}?view=full`);

    test("README's command runs jobs and the console for a caller without Node, and a kill loses nothing", async () => {
      const { id, said, ended } = await start();
      expect(said).toContain("no key is asked for");
      const kept = "open('note.txt', 'w').write('kept')\nprint(6 * 7)";
      const { job_id, stdout } = await curl<SyncResult>("/execute", { code: kept });
      expect(stdout).toBe("42\n");
      // The first jobs may come before the agent has tried that it can fork.
      await waitUntil("a job is forked", async () => {
        const forked = await curl<SyncResult>("/execute", { code: "pass" });
        return "container_backend" in (await record(forked.job_id));
      });
      const browser = await openBrowser();
      try {
        const { page, complaints } = await openPage(browser);
        await page.goto(`${at}/console`);
        await page.getByRole("button", { name: "Run" }).waitFor();
        expect(complaints).toEqual([]);
      } finally {
        await browser.close();
      }

      const slow = "import time; print('begun', flush=True); time.sleep(3); print('done')";
      const { job_id: cut } = await curl<SyncResult>("/execute/async", { code: slow });
      await waitUntil("it runs", async () => (await record(cut)).status === "running");
      const asksToken = ["exec", id, "cat", "/data/agent-token"];
      const token = (await promisify(execFile)("docker", asksToken)).stdout.trim();
      await rawEngine.getContainer(id).kill();
      await ended;
      const owner = agentName(token, "container");
      const left = await containersOf(owner);
      expect(left).not.toEqual([]);
      onTestFinished(() => removeContainersOf(owner));

      const next = await start();
      expect(await record(job_id)).toMatchObject({ status: "succeeded", stdout: "42\n" });
      const { stdout: note } = await promisify(execFile)("curl", [
        "-sS",
        `${at}/jobs/${job_id}/artifacts/note.txt`,
      ]);
      expect(note).toBe("kept");
      const again = await curl<ExecutionRecord>(
        `/jobs/${cut}/result?wait=true&timeout=290&view=full`,
      );
      expect(again).toMatchObject({ status: "succeeded", stdout: "begun\ndone\n" });
      await rawEngine.getContainer(next.id).stop({ t: 60 });
      await next.ended;
      // The agent removes those of the first run later: another container's, for all that it can see.
      expect((await containersOf(owner)).filter((other) => !left.includes(other))).toEqual([]);
    });

    test("the image has its licence, and its labels say what it is", async () => {
      const { Config } = await rawEngine.getImage(name).inspect();
      expect(Config.Labels).toMatchObject({
        "org.opencontainers.image.title": "airlock",
        "org.opencontainers.image.licenses": "MIT",
      });
      expect(await shell(name, "cat /opt/airlock/LICENSE")).toMatch(/^MIT License/);
    });
  });
});

/** The command of README.md that starts all in one container, with names and a port of this test. */
function readmeCommand(port: number, volume: string): string {
  const [line = ""] = /^docker run [^]*? start$/m.exec(readFileSync("README.md", "utf8")) ?? [];
  const own = [
    ["127.0.0.1:8080:", `127.0.0.1:${port}:`],
    ["-v airlock:/data airlock ", `-v ${volume}:/data ${name} `],
  ] as const;
  return own.reduce((command, [theirs, ours]) => {
    expect(command).toContain(theirs);
    return command.replace(theirs, ours);
  }, line);
}
