import { execFile } from "node:child_process";
import { afterAll, beforeAll, expect, test } from "vitest";
import { programArgs } from "../../shared/testing/program.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import { Follower } from "../../api/testing/follower.ts";
import { type NodeProcess, startNodeIn } from "../../api/testing/start-node.ts";

const folder = tempFolder();
let api: NodeProcess;
let key: string;

/** Runs the command as an operator would: its exit code and what it says. */
function operate(...args: string[]) {
  return new Promise<{ code: number; said: string }>((resolve) => {
    const env = { PATH: process.env["PATH"], AIRLOCK_DATA_DIR: folder };
    const command = [...programArgs("scripts/keys.ts"), ...args];
    execFile(process.execPath, command, { env }, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code) : 0, said: stdout + stderr });
    });
  });
}
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
  const { said } = await operate("limits", "search", "--max-queued", "5", "--max-running", "none");
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
