import { execFile } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rotateToken } from "../../agent/api/join.ts";
import { programArgs } from "../../shared/testing/program.ts";
import { type AgentProcess, startAgent } from "../../agent/testing/agent-process.ts";
import { type NodeProcess, startNode } from "../../api/testing/start-node.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

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

/** Runs an entry point as an operator would: its exit code and what it says. */
function run(file: string, args: string[], env: Record<string, string>) {
  return new Promise<{ code: number; said: string }>((resolve) => {
    const command = [...programArgs(file), ...args];
    const options = { env: { PATH: process.env["PATH"], ...env } };
    execFile(process.execPath, command, options, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code) : 0, said: stdout + stderr });
    });
  });
}

const operate = (...args: string[]) =>
  run("scripts/agents.ts", args, {
    AIRLOCK_DATABASE_URL: api.databaseUrl,
    AIRLOCK_DATA_DIR: folder,
  });
const onHost = (...args: string[]) => run("agent/main.ts", args, { AIRLOCK_DATA_DIR: folder });
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
  const asked = await run("clients/cli/main.ts", ["agents", "rotate", "gpu-1"], {
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
  const said = [joined, rotated, listed].map((one) => one.said).join("") + log + (await api.logged);
  for (const secret of secrets) expect(said).not.toContain(secret);
});
