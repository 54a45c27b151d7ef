import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, statSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { rotateToken } from "../../agent/client/join.ts";
import { type AgentProcess, startAgent } from "../../agent/testing/agent-process.ts";
import { Follower } from "../../api/testing/follower.ts";
import { type NodeProcess, startNode, startNodeIn } from "../../api/testing/start-node.ts";
import manifest from "../../package.json" with { type: "json" };
import { programArgs, runProgram } from "../../shared/testing/program.ts";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";

describe("help", () => {
  const run = promisify(execFile);
  /** No help: check, docs and format have no options, and a test would run this again where it fails. */
  const left = /^(check|docs|format|test.*)$/;
  const entries = Object.entries(manifest.scripts).filter(([name]) => !left.test(name));

  const folder = tempFolder();

  /** The entry point behind an npm script, with its data where only a mistake would put any. */
  function start(script: string, args: string[]) {
    const [entry = "", ...words] = script.split("scripts/run ")[1]!.split(" ");
    const env = { ...process.env, AIRLOCK_DATA_DIR: join(folder, "data"), AIRLOCK_PORT: "0" };
    return run(process.execPath, [...programArgs(entry), ...words, ...args], {
      env,
      timeout: 240_000,
    });
  }

  test.concurrent.each(entries)(
    "npm run %s says how to use it, and does nothing else",
    async (name, script) => {
      const { stdout } = await start(script, ["--help"]);
      // The command line is also a program of its own.
      const usages: Record<string, string> = { start: "npm start", airlock: "airlock" };
      expect(stdout).toContain(`Usage: ${usages[name] ?? `npm run ${name}`}`);
      expect(await readdir(folder)).toEqual([]);
    },
  );

  test.concurrent.each([
    "api",
    "agent",
    "agents",
    "migrate",
    "backup",
    "restore",
    "setup",
    "soak",
  ] as const)("npm run %s refuses an argument that it does not know", async (name) => {
    const refused = start(manifest.scripts[name], ["--nonesuch"]);
    await expect(refused).rejects.toThrow(/--nonesuch[^]*--nonesuch[^]*-- --help/);
    expect(await readdir(folder)).toEqual([]);
  });
});

test("SIGTERM to npm stops the service, not only the shell between them", async () => {
  const dataDir = tempFolder();
  const npm = spawn("npm", ["run", "api"], {
    detached: true,
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, AIRLOCK_PORT: "0", AIRLOCK_DATA_DIR: dataDir },
  });
  onTestFinished(() => {
    try {
      process.kill(-npm.pid!, "SIGKILL");
    } catch {} // All of its group has ended.
  });
  let said = "";
  npm.stderr.on("data", (chunk: Buffer) => {
    said += chunk.toString();
    if (said.includes("listening on") && !npm.killed) npm.kill("SIGTERM");
  });
  // Its output is closed once nobody holds it any more.
  await once(npm, "close");
  expect(said).toMatch(/listening on [^]* stopping/);
});

test.each(["start", "api", "agent", "airlock"] as const)(
  "npm run %s leaves no shell in between",
  (name) => {
    expect(manifest.scripts[name]).toMatch(/^exec sh scripts\/run /);
  },
);

test("npm run airlock takes paths from the folder where the person stands", () => {
  const args = ["run", "-s", "airlock", "--", "batch", "run"];
  const { status, stderr } = spawnSync("npm", args, { cwd: "scripts", encoding: "utf8" });
  // scripts/run was read, and is no batch.
  expect(stderr).toContain("line 1 is not JSON");
  expect(status).toBe(2);
});

test("npm start names a data folder that is a file, without a stack", () => {
  const env = { ...process.env, AIRLOCK_PORT: "0", AIRLOCK_DATA_DIR: "package.json" };
  const args = programArgs("scripts/start/main.ts");
  const { status, stderr } = spawnSync(process.execPath, args, { env, encoding: "utf8" });
  expect(stderr).toMatch(/^airlock: package\.json is or leads through a file, .*data_dir\n$/);
  expect(status).toBe(1);
});

describe("keys", () => {
  const folder = tempFolder();
  let api: NodeProcess;
  let key: string;

  const operate = (...args: string[]) =>
    runProgram("scripts/operate/access.ts", ["keys", ...args], { AIRLOCK_DATA_DIR: folder });
  const headers = (bearer: string) => ({
    Authorization: `Bearer ${bearer}`,
    "Content-Type": "application/json",
  });
  const get = (path: string, bearer = key) => fetch(api.url + path, { headers: headers(bearer) });
  async function made(...args: string[]): Promise<string> {
    const { code, said } = await operate(...args);
    expect([code, said]).toEqual([0, expect.stringMatching(/^alk_[\w-]{43}\n\n/)]);
    return said.split("\n")[0]!;
  }

  beforeAll(async () => {
    key = await made("create", "--name", "ops", "--scopes", "run,read,admin", "--tenant", "search");
    api = await startNodeIn(folder, { AIRLOCK_API_AUTH_ENABLED: "true" });
  });
  afterAll(() => api.close());

  test("a key that a command makes is enough to start; it works, and is listed without itself", async () => {
    expect((await get("/executions")).status).toBe(200);
    const { said } = await operate("list");
    expect(said).toMatch(/ops +search +run,read,admin +\S+Z +\S+ +never +-$/m);
    expect(said).not.toContain(key);
  });

  test("a revoked key ends its stream in another process", async () => {
    const own = await made("create", "--name", "ci", "--scopes", "run,read", "--expires", "1h");
    const submit = { method: "POST", headers: headers(own), body: '{"code": "1"}' };
    const reply = await fetch(`${api.url}/execute/async`, submit);
    const { job_id } = (await reply.json()) as { job_id: string };
    await using follower = await Follower.open(api.url, `/jobs/${job_id}/events`, headers(own));
    expect(await operate("revoke", "ci")).toMatchObject({ code: 0 });
    await follower.rest();
    expect(follower.seen.map(({ event }) => event)).not.toContain("end");
    expect((await get("/executions", own)).status).toBe(401);
    expect(await operate("revoke", "ci")).toMatchObject({ code: 1 });
  });

  test("a rotation prints another key, the limits are shown with the use, and the audit log names the shell", async () => {
    const next = await made("rotate", "ops", "--old-valid", "0s");
    await waitUntil("the old key is void", async () => (await get("/executions")).status === 401);
    key = next;
    const { said } = await operate(
      "limits",
      "search",
      "--max-queued",
      "5",
      "--max-running",
      "none",
    );
    expect(said).toMatch(/^search\n[^]*queued +0 +5\nrunning +0 +none\n/);
    expect((await operate("limits", "search")).said).toMatch(/queued +0 +5\n/);
    const reply = await get("/audit?tenant=search");
    const { items } = (await reply.json()) as { items: { action: string; key_name: string }[] };
    expect(items.map(({ action, key_name }) => [action, key_name])).toEqual([
      ["tenant.limits", "shell"],
      ["key.rotate", "shell"],
      ["key.create", "shell"],
    ]);
  });
});

describe("agents", () => {
  let api: NodeProcess;
  let folder: string;
  const agents: AgentProcess[] = [];
  beforeAll(async () => {
    folder = tempFolder();
    api = await startNode({ AIRLOCK_LOG_LEVEL: "debug" });
  });
  afterAll(async () => {
    for (const agent of agents) agent.process.kill("SIGKILL");
    await api.close();
  });

  const operate = (...args: string[]) =>
    runProgram("scripts/operate/access.ts", ["agents", ...args], {
      AIRLOCK_DATABASE_URL: api.databaseUrl,
      AIRLOCK_DATA_DIR: folder,
    });
  const onHost = (...args: string[]) =>
    runProgram("agent/main.ts", args, { AIRLOCK_DATA_DIR: folder });
  const kept = () =>
    JSON.parse(readFileSync(join(folder, "agent.json"), "utf8")) as { token: string; name: string };

  test("a host joins with a code, works with its token, changes to a new one, and ends when it is revoked", async () => {
    const invited = await operate("invite", "--name", "gpu-1");
    const code = invited.said.split("\n")[0] ?? "";
    expect(code).toMatch(/^alj_[0-9a-f]{40}$/);
    const secrets = [code];

    const joined = await onHost("join", "--url", api.url, "--code", code);
    expect(joined).toMatchObject({ code: 0 });
    expect(joined.said).toContain(`joined ${api.url} as gpu-1`);
    expect(statSync(join(folder, "agent.json")).mode & 0o777).toBe(0o600);
    secrets.push(kept().token);

    const agent = startAgent({
      AIRLOCK_AGENT_TOKEN: undefined,
      AIRLOCK_DATA_DIR: folder,
      AIRLOCK_LOG_LEVEL: "debug",
      AIRLOCK_LOG_FORMAT: "json",
      AIRLOCK_DOCKER_HOST: `unix://${join(folder, "no-engine.sock")}`,
      AIRLOCK_SPOOL_DIR: join(folder, "spool"),
    });
    agents.push(agent);
    await agent.ready;
    const pool = (await (await fetch(`${api.url}/pool/stats`)).json()) as { agents: unknown[] };
    expect(pool.agents).toHaveLength(1);

    const rotated = await onHost("rotate");
    expect(rotated).toMatchObject({ code: 0 });
    expect(kept().token).not.toBe(secrets[1]);
    secrets.push(kept().token);
    // The agent's next request is refused once, and takes the new token.
    const listed = await operate("list");
    expect(listed.said).toMatch(/gpu-1 .*Z .*Z .*-$/m);

    // Asked by an operator, the running agent does the same by itself.
    const { url } = api;
    const asked = await runProgram("clients/cli/main.ts", ["agents", "rotate", "gpu-1"], {
      AIRLOCK_URL: url,
    });
    expect(asked).toMatchObject({ code: 0, said: "gpu-1 has a new token; the old one is void\n" });
    expect(secrets).not.toContain(kept().token);
    secrets.push(kept().token);

    // Two agents of one host are asked at the same time.
    const own = { AIRLOCK_DATA_DIR: folder };
    await Promise.all([rotateToken(own), rotateToken(own)]);
    secrets.push(kept().token);
    await rotateToken(own);
    secrets.push(kept().token);
    expect(new Set(secrets).size).toBe(secrets.length);

    expect(await operate("revoke", "gpu-1")).toMatchObject({ code: 0 });
    expect(await agent.exit).toBe(2);
    const log = await agent.stderr;
    // Which of the two depends on whether a request was under way.
    expect(log).toMatch(/unknown or revoked|was revoked/);
    expect(await operate("revoke", "gpu-1")).toMatchObject({ code: 1 });

    api.child.kill("SIGTERM");
    const said =
      [joined, rotated, listed].map((one) => one.said).join("") + log + (await api.logged);
    for (const secret of secrets) expect(said).not.toContain(secret);
  });
});
