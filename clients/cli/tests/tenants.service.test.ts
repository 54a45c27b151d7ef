import { afterAll, expect, test } from "vitest";
import { ScriptedAgent } from "../../../api/testing/scripted-agent.ts";
import { tempFolder } from "../../../shared/testing/test-file.ts";
import { commandFor } from "../../testing/command.ts";
import { agentToken, operatorKey, startTenantService } from "../../testing/services.ts";

const api = await startTenantService();
afterAll(() => api.close());
const airlock = commandFor(api.url, operatorKey);
const create = async (name: string, tenant: string, scopes = "run,read"): Promise<string> => {
  const args = ["keys", "create", "--name", name, "--tenant", tenant, "--scopes", scopes];
  return (await airlock.run(args)).stdout.trim();
};
const json = async <T>(args: string[]): Promise<T> =>
  JSON.parse((await airlock.run([...args, "--json"])).stdout) as T;

test("keys create prints the key once, alone on standard output, and it works until it is revoked", async () => {
  const args = "keys create --name ci --tenant search --scopes run,read --expires 90d";
  const made = await airlock.run(args.split(" "));
  expect(made.stdout).toMatch(/^alk_[\w-]{43}\n$/);
  expect(made.stderr).toMatch(
    /^\nIt is not shown again\. ci may run, read for the tenant search, until 20.*Z\.\n$/,
  );
  const key = made.stdout.trim();
  const own = commandFor(api.url, key);
  expect((await own.run(["ps"])).code).toBe(0);
  const listed = await airlock.run(["keys", "list"]);
  expect(listed.stdout).toMatch(/search +valid +.* +20\d\d-\d\d-\d\d +run,read +ci\n/);
  expect(listed.stdout).not.toContain(key);
  expect(await airlock.run(["keys", "revoke", "ci"])).toMatchObject({
    code: 0,
    stdout: "ci is revoked\n",
  });
  expect((await airlock.run(["keys", "list"])).stdout).toMatch(/search +revoked/);
  expect(await airlock.run(["keys", "revoke", "ci"])).toMatchObject({
    code: 2,
    stderr: "airlock: there is no key ci; airlock keys list shows them\n",
  });
  await expect.poll(async () => (await own.run(["ps"])).code, { timeout: 60_000 }).toBe(126);
});

test.each(["run", "read", "monitor", "admin"])(
  "login and doctor take a key with the scope %s alone, and say so",
  async (scope) => {
    const key = await create(`only-${scope}`, "search", scope);
    const env = { XDG_CONFIG_HOME: tempFolder(), AIRLOCK_URL: "", AIRLOCK_KEY: "" };
    const whose = `only-${scope} of tenant search, for ${scope}\n`;
    const login = await airlock.run(["login", api.url], { env, stdin: `${key}\n` });
    expect(login).toMatchObject({ code: 0 });
    expect(login.stderr).toContain(`config.json: ${whose}`);
    const { stdout } = await airlock.run(["doctor"], { env });
    expect(stdout).toContain(`ok  the key is accepted: ${whose}`);
    expect(stdout).toContain("no agent is connected");
    expect(stdout.includes("no job is tried: the key lacks the scope run")).toBe(scope !== "run");
  },
);

test("doctor tries a job with a key that may run it, though it may not see the agents", async () => {
  const key = await create("runner", "search", "run");
  const agent = new ScriptedAgent(api.url, agentToken);
  const jobs = agent.poll({ free_slots: 1, wait_s: 30 });
  const doctor = commandFor(api.url, key).run(["doctor"]);
  const [job] = (await jobs).jobs;
  await agent.result(job!.lease_id);
  expect(await doctor).toMatchObject({ code: 0 });
  expect((await doctor).stdout).toContain("ok  agents are connected; a key with");
  expect((await doctor).stdout).toContain("ok  a job runs");
  await agent.leave();
});

test("session create prints what it has made with a key that may not read it", async () => {
  const own = commandFor(api.url, await create("maker", "search", "run"));
  const agent = new ScriptedAgent(api.url, agentToken);
  agent.maxSessions = 1;
  const made = own.run(["session", "create"]);
  const { session_id } = await agent.startSession();
  expect(await made).toMatchObject({ code: 0, stdout: `${session_id}\n` });
  await agent.leave();
});

test("keys rotate prints another key; the old one holds for as long as was asked", async () => {
  const old = await create("rotated", "search");
  const again = await airlock.run(["keys", "rotate", "rotated"]);
  expect(again.stderr).toContain("The old key holds for 24 h.");
  const key = again.stdout.trim();
  expect(key).not.toBe(old);
  for (const one of [old, key]) expect((await commandFor(api.url, one).run(["ps"])).code).toBe(0);
  expect((await airlock.run(["keys", "list"])).stdout).toMatch(/rotating .* rotated\n/);
  const last = await airlock.run(["keys", "rotate", "rotated", "--old-valid", "0"]);
  expect(last.stderr).toContain("The old key is void.");
  expect((await commandFor(api.url, last.stdout.trim()).run(["ps"])).code).toBe(0);
});

test("keys limits changes the limits that are named, and usage shows them to the tenant", async () => {
  const key = await create("maps", "maps");
  const set = ["keys", "limits", "maps", "--max-queued", "1", "--max-stored-bytes", "10GB"];
  expect((await airlock.run(set)).stdout).toBe(
    [
      "tenant    maps",
      "queued    0, of at most 1",
      "running   0, no limit",
      "stored    0 B, of at most 10.0 GB",
      "CPU today 0 ms, no limit",
      "requests  no limit\n",
    ].join("\n"),
  );
  const more = ["keys", "limits", "maps", "--max-cpu-s-day", "1h", "--max-stored-bytes", "none"];
  const { limits } = await json<{ limits: object }>(more);
  expect(limits).toMatchObject({ max_queued: 1, max_cpu_s_day: 3600, max_stored_bytes: null });
  const own = commandFor(api.url, key);
  const run = ["run", "--detach", "-"];
  expect((await own.run(run, { stdin: "1" })).code).toBe(0);
  await airlock.run(["keys", "limits", "maps", "--max-cpu-s-day", "0"]);
  const met = JSON.parse((await own.run(["--json", ...run], { stdin: "1" })).stdout) as object;
  expect(met).toMatchObject({
    error: { code: "quota_exceeded", quota: "max_cpu_s_day", limit: 0 },
  });
  const usage = (await own.run(["usage"])).stdout;
  expect(usage).toMatch(/^tenant +maps\nqueued +1, of at most 1\n[^]*\nyour key  run, read\n$/);
  expect((await airlock.run(["keys", "limits"])).stdout).toMatch(/^ +1 \/ 1 +0 .* maps$/m);
  expect((await airlock.run(["keys", "limits", "--max-queued", "1"])).code).toBe(2);
  const wrong = await airlock.run(["keys", "limits", "maps", "--max-stored-bytes", "1 heap"]);
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining("such as 500MB or 10g")]);
});

test("audit lists what was done, by action and tenant", async () => {
  await create("audited", "audited");
  const { stdout } = await airlock.run(["audit", "-n", "1", "--action", "key.create"]);
  expect(stdout).toMatch(
    /^ *AGE +ACTION +BY +TENANT +TARGET +DETAIL\n.* key\.create +operator_keys +audited /,
  );
  const entries = await json<{ tenant: string; action: string }[]>([
    "audit",
    "--tenant",
    "audited",
  ]);
  expect(entries.map(({ tenant, action }) => [tenant, action])).toEqual([
    ["audited", "key.create"],
  ]);
});

test("a key without the scope is told which it lacks, and keys are for one tenant", async () => {
  const own = commandFor(api.url, await create("plain", "plain"));
  for (const args of [["keys", "list"], ["audit"], ["--tenant", "maps", "ps"]]) {
    const { code, stderr } = await own.run(args);
    expect([code, stderr]).toEqual([126, expect.stringContaining("scope admin")]);
  }
  const scopes = ["--name", "a", "--scopes", "run"];
  expect((await airlock.run(["keys", "create", "--tenant", "*", ...scopes])).code).toBe(2);
  expect((await airlock.run(["keys", "create", "--tenant", "No", ...scopes])).code).toBe(2);
  const unknown = await airlock.run(["keys", "create", "--name", "a", "--scopes", "fly"]);
  expect([unknown.code, unknown.stderr]).toEqual([126, expect.stringContaining("scopes.0")]);
});

test("--tenant acts for another tenant, and * shows whose each record is", async () => {
  const own = commandFor(api.url, await create("theirs", "theirs"));
  const id = (await own.run(["run", "--detach", "-"], { stdin: "1" })).stdout.trim();
  expect((await airlock.run(["ps"])).stdout).not.toContain(id);
  expect((await airlock.run(["--tenant", "theirs", "ps"])).stdout).toContain(id);
  const all = await airlock.run(["ps", "--tenant", "*"]);
  expect(all.stdout).toMatch(new RegExp(`TENANT.*\n[^]*${id} .*theirs`));
  expect((await airlock.run(["--tenant", "*", "cancel", id])).code).toBe(126);
  expect((await airlock.run(["--tenant", "theirs", "cancel", id])).code).toBe(0);
});
