import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { containersOf, rawEngine } from "../../agent/testing/raw-engine.ts";
import { Follower, textOf } from "../../api/testing/follower.ts";
import { isLab, waitUntil } from "../../shared/testing/test-file.ts";
import type { Session } from "../../shared/wire/sessions.ts";
import { isRunning } from "../testing/start-process.ts";
import {
  places,
  placesOfTier,
  startTestService,
  type TestAgent,
  type TestService,
} from "../testing/test-service.ts";

type Result = Record<string, unknown> & { readonly job_id: string };

/** A session, and its calls. */
async function open(service: TestService, more: Record<string, unknown> = {}) {
  const { status, json } = await service.send<Session>("POST", "/sessions", { wait: 30, ...more });
  expect([status, json.status]).toEqual([201, "ready"]);
  const path = `/sessions/${json.session_id}`;
  return {
    path,
    session: json,
    read: async () => (await service.send<Session>("GET", path)).json,
    call: async (code: string, options: Record<string, unknown> = {}) =>
      (await service.send<Result>("POST", `${path}/execute`, { code, ...options })).json,
    post: async (to: string, body: unknown = {}) =>
      (await service.send<Result>("POST", `${path}/${to}`, body)).json,
  };
}

const textsOf = ({ results }: Result): unknown[] =>
  (results as { data: Record<string, string> }[] | undefined)?.map(
    ({ data }) => data["text/plain"],
  ) ?? [];

/** A session with a call that runs and has printed, and two calls that wait. */
async function openBusy(service: TestService, code = "time.sleep(120)") {
  const made = await service.send<Session>("POST", "/sessions", { wait: 60 });
  expect(made.status).toBe(201);
  const path = `/sessions/${made.json.session_id}`;
  const submit = async (text: string): Promise<string> => {
    const body = { code: text, timeout: 120 };
    const { json } = await service.send("POST", `${path}/execute/async`, body);
    return String(json["job_id"]);
  };
  const running = await submit(`import time\nprint("begun", flush=True)\n${code}`);
  await using follower = await Follower.open(service.url, `/jobs/${running}/events`);
  await follower.until(() => textOf(follower.seen, "stdout") === "begun\n");
  return { path, running, waiting: [await submit("1"), await submit("2")] };
}

type Busy = Awaited<ReturnType<typeof openBusy>>;

async function fateOf(service: TestService, { path, running, waiting }: Busy) {
  const ended = await Promise.all([running, ...waiting].map((id) => service.ended(id)));
  const session = (await service.send<Session>("GET", path)).json;
  const [call, ...rest] = ended.map(({ status, error, stdout }) => {
    return { end: `${status} ${error?.type}`, message: error?.message ?? "", stdout };
  });
  return { session: `${session.status} ${session.reason}`, call, rest };
}

/** What a client finds after a fault, by the table of sessions that end. */
function ends(reason: string, end: string, stdout = "begun\n") {
  const message = expect.stringContaining(reason) as string;
  const waited = { end: "cancelled cancelled", message, stdout: "" };
  return {
    session: `ended ${reason}`,
    call: expect.objectContaining({ end, stdout }) as object,
    rest: [waited, waited],
  };
}

const killContainers = async ({ name }: TestAgent): Promise<void> => {
  for (const id of await containersOf(name)) await rawEngine.getContainer(id).kill();
};

const faults: Record<
  string,
  [fault: (service: TestService, agent: TestAgent, busy: Busy) => Promise<unknown>, fate: object]
> = {
  "its agent is killed": [
    (_service, agent) => agent.end("SIGKILL"),
    ends("agent_lost", "failed internal_error"),
  ],
  "its agent is stopped": [
    (_service, agent) => agent.end("SIGTERM"),
    ends("agent_stopped", "cancelled cancelled"),
  ],
  "its container or mother is killed": [
    (_service, agent) => killContainers(agent),
    ends("engine_lost", "failed internal_error"),
  ],
  "it is deleted": [
    (service, _agent, { path }) => service.send("DELETE", path),
    ends("deleted", "cancelled cancelled"),
  ],
  "its lifetime is over": [
    (service, _agent, { path }) => service.send("PATCH", path, { lifetime: 1 }),
    ends("lifetime", "cancelled cancelled"),
  ],
};

describe.concurrent.each(placesOfTier)("in %s", (place) => {
  /** They share what they run in. */
  const one = { concurrent: false };
  let service: TestService;
  let agent: TestAgent;
  beforeAll(async () => {
    service = await startTestService({
      agents: { ...places[place], AIRLOCK_DRAIN_GRACE_S: "1", AIRLOCK_MAX_WORKERS: "1" },
    });
  });
  const ensureAgent = async (): Promise<void> => {
    if (!agent || !isRunning(agent.process)) agent = await service.startAgent();
  };
  beforeEach(ensureAgent);
  afterEach(async () => {
    const { json } = await service.send<{ items: Session[] }>("GET", "/sessions?limit=100");
    for (const { session_id } of json.items)
      await service.send("DELETE", `/sessions/${session_id}`);
  });
  afterAll(() => service?.[Symbol.asyncDispose]());

  test(
    "variables and files stay from call to call, until the session is deleted",
    one,
    async () => {
      const { session, call, post, path, read } = await open(service, { env: { OF: "session" } });
      expect(session).toMatchObject({
        container_backend: place === "forks" ? "zygote" : "engine",
        container_runtime: place === "gVisor" ? "runsc" : "runc",
        contexts: ["default"],
      });

      expect(await call("x = 41")).toMatchObject({ success: true });
      expect(textsOf(await call("import os\nx + 1, os.environ['OF']"))).toEqual([
        "(42, 'session')",
      ]);
      const failed = await call("1 / 0");
      expect(failed).toMatchObject({ success: false, error: { type: "division_error" } });
      const written = await call("print(open('/input/a').read()); open('b', 'w').write('made')", {
        files: [{ name: "a", text: "brought" }],
      });
      expect(await service.record(written.job_id)).toMatchObject({
        stdout: "brought\n",
        artifacts: [{ name: "b" }],
      });

      const { context_id } = await post("contexts");
      expect(textsOf(await call("x = 1\nx", { context: context_id }))).toEqual(["1"]);
      expect(textsOf(await call("x"))).toEqual(["41"]);

      expect(await post("execute", { command: ["cat", "b"] })).toMatchObject({ stdout: "made" });
      expect((await service.send("GET", `${path}/files/b`)).text).toBe("made");
      expect((await service.send("GET", `${path}/files`)).json["items"]).toMatchObject([
        { path: "b" },
      ]);

      await post("restart");
      expect(await call("x")).toMatchObject({ error: { type: "name_error" } });
      expect((await service.send("GET", `${path}/files/b`)).text).toBe("made");

      const running = service.send<Result>("POST", `${path}/execute`, {
        code: "import time\ny = 1\ntime.sleep(60)",
      });
      await waitUntil("the call runs", async () => (await post("interrupt")).job_id !== null);
      expect((await running).json).toMatchObject({ error: { type: "cancelled" } });

      expect((await service.send("DELETE", path)).status).toBe(204);
      expect(await read()).toMatchObject({ status: "ended", reason: "deleted" });
      if (place !== "forks")
        await waitUntil("its container is gone", async () => {
          return (await containersOf(agent.name)).length === 0;
        });
      expect(await service.execute("print('a job')")).toMatchObject({ stdout: "a job\n" });
    },
  );

  test("calls run in order, one at a time, beside jobs that fill all slots", one, async () => {
    const { call, post } = await open(service);
    const job = await service.submit("import time\ntime.sleep(60)");
    await service.untilBegun(job);
    await call("seen = []");
    const ids: string[] = [];
    for (let n = 0; n < 20; n++)
      ids.push((await post("execute/async", { code: `seen.append(${n})` })).job_id);
    expect(textsOf(await call("seen"))).toEqual([`[${[...ids.keys()].join(", ")}]`]);
    await service.send("POST", `/jobs/${job}/cancel`);
  });

  test(
    "files of a session are written, listed, read and removed, in the order of its calls",
    one,
    async () => {
      const made = await service.send("POST", "/sessions", { wait: 30 });
      expect(made.status).toBe(201);
      const session = `/sessions/${String(made.json["session_id"])}`;
      const raw = async (method: string, path: string, body?: string) => {
        const headers = { "Content-Type": "application/octet-stream" };
        const init = { method, ...(body !== undefined && { body, headers }) };
        const reply = await fetch(`${service.url}${session}/files${path}`, init);
        return { status: reply.status, headers: reply.headers, text: await reply.text() };
      };
      const execute = async (code: string) =>
        (await service.send("POST", `${session}/execute`, { code })).json["stdout"];

      expect((await raw("PUT", "/tables/a.csv", "a,b\n")).status).toBe(204);
      expect((await raw("PUT", "/tables/a.csv", "c,d\n")).status).toBe(204);
      expect(await execute("print(open('tables/a.csv').read())")).toBe("c,d\n\n");
      await execute("open('tables/b', 'w').write('made')\nimport os\nos.mkdir('tables/c')");
      const { text } = await raw("GET", "?path=tables");
      expect(JSON.parse(text)).toMatchObject({
        items: [
          { path: "tables/a.csv", type: "file", size_bytes: 4 },
          { path: "tables/b", type: "file", size_bytes: 4 },
          { path: "tables/c", type: "folder" },
        ],
      });
      expect(await raw("GET", "/tables/b")).toMatchObject({ status: 200, text: "made" });
      const head = await raw("HEAD", "/tables/a.csv");
      expect([head.status, head.headers.get("Content-Length")]).toEqual([200, "4"]);
      expect((await raw("GET", "/tables/none")).status).toBe(404);
      expect((await raw("GET", "/tables/c")).status).toBe(404);
      expect((await raw("GET", "?path=none")).status).toBe(404);

      await execute("os.symlink('/etc/passwd', 'link')");
      expect((await raw("GET", "/link")).status).toBe(404);
      expect((await raw("DELETE", "/link")).status).toBe(204);
      expect((await raw("DELETE", "/tables")).status).toBe(204);
      expect((await raw("DELETE", "/tables")).status).toBe(404);
      expect(await execute("print(os.listdir('.'))")).toBe("[]\n");
    },
  );

  test.each(Object.keys(faults))("%s while a call runs and two wait", one, async (what) => {
    const [fault, fate] = faults[what]!;
    const busy = await openBusy(service);
    await fault(service, agent, busy);
    await ensureAgent();
    expect(await fateOf(service, busy)).toEqual(fate);
    const refused = await service.send("POST", `${busy.path}/execute`, { code: "1" });
    expect([refused.status, refused.json["code"]]).toEqual([409, "session_ended"]);
    const isForked = place === "forks";
    await waitUntil("its container is gone", async () => {
      return (await containersOf(agent.name)).length <= (isForked ? 1 : 0);
    });
  });

  test("the API is killed while a call runs: nothing is lost", one, async () => {
    const { path, running, waiting } = await openBusy(service, "time.sleep(2)\nx = 40");
    await service.api().close();
    await service.startApi();
    const [first, ...rest] = await Promise.all(
      [running, ...waiting].map(async (id) => (await service.ended(id)).status),
    );
    expect([first, ...rest]).toEqual(["succeeded", "succeeded", "succeeded"]);
    const next = await service.send("POST", `${path}/execute`, { code: "print(x + 2)" });
    expect(next.json).toMatchObject({ success: true, stdout: "42\n" });
  });
});

test.concurrent("the API is away for longer than the lease: the session ends, and the agent has closed it", async () => {
  await using service = await startTestService({
    api: { AIRLOCK_LIVENESS_S: "2", AIRLOCK_LEASE_TTL_S: "6" },
    agents: isLab ? places.gVisor : places.containers,
  });
  const agent = await service.startAgent("agent");
  const busy = await openBusy(service);
  await service.api().close();
  await waitUntil("the agent has closed the sandbox", async () => {
    return (await containersOf(agent.name)).length === 0;
  });
  await service.startApi();
  expect(await fateOf(service, busy)).toEqual(ends("agent_lost", "failed internal_error"));
});

const inGvisor = isLab ? ["in gVisor"] : [];
test.concurrent.each(inGvisor)(
  "%s, too much memory ends the session with out_of_memory",
  async () => {
    await using service = await startTestService({ agents: places.gVisor });
    await service.startAgent("agent");
    const busy = await openBusy(
      service,
      "time.sleep(3)\nx = []\nwhile True: x.append(b'x' * 1_000_000)",
    );
    expect(await fateOf(service, busy)).toEqual(ends("out_of_memory", "oom oom"));
  },
);
