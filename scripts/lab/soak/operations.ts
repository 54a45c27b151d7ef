import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { at, type Client, type Json, newId, type Operation, some, withPlace } from "./client.ts";
import { facadeOperations } from "./facades.ts";
import { checkEnd, checkEnded, jobOperations, printJob, submit, untilEnded } from "./jobs.ts";

/** A session of a client, with what its model says of it. */
class Session {
  readonly client: Client;
  readonly mark: string;
  readonly id: string;

  constructor(client: Client, mark: string, id: string) {
    this.client = client;
    this.mark = mark;
    this.id = id;
  }

  static async open(client: Client, more: Json = {}): Promise<Session> {
    const mark = client.mark();
    const body = {
      metadata: { mark },
      env: { MARK: `env of ${mark}` },
      startup_timeout: 300,
      idempotency_key: mark,
      ...more,
    };
    const made = await client.ask(at`POST /sessions`, { body });
    client.check(made, { metadata: { mark }, contexts: ["default"], calls: 0 });
    return new Session(client, mark, made.json["session_id"] as string);
  }

  /** Runs a cell, and checks how it ends and what it shows. Resolves with how it ended. */
  async call(
    code: string,
    shown: string | null,
    ends = ["succeeded"],
    more: Json = {},
  ): Promise<string> {
    const { client, mark, id: session } = this;
    const body = { code: `# call of ${mark}\n${code}`, metadata: { mark }, ...more };
    const answer = await client.ask(at`POST /sessions/${session}/execute`, { body });
    const id = answer.json["job_id"] as string;
    client.acknowledge(id, [...ends, ...(client.watch.isCalm ? [] : lostCall)]);
    const { success, error } = answer.json as { success: boolean; error: { type: string } | null };
    const status = success ? "succeeded" : error?.type === "cancelled" ? "cancelled" : "failed";
    checkEnd(client, answer, ends, { status, error }, lostCall);
    const results = (answer.json["results"] ?? []) as { main: boolean; data: Json }[];
    if (shown !== null && success)
      client.check(answer, shown, results.find(({ main }) => main)?.data["text/plain"]);
    return error === null ? status : `${status}/${error.type}`;
  }

  /** Runs a cell after a call that was to end at `sinceMs`. Where that has killed the interpreter, the cell gets another one. */
  async callAfter(sinceMs: number, code: string, shown: string, before: string): Promise<void> {
    if ((await this.call(code, shown, ["succeeded", killed])) !== killed) return;
    this.client.noteKill(sinceMs);
    await this.call(`${before}\n${code}`, shown, ["succeeded"], { restart: true });
  }

  async patch(more: Json = {}): Promise<void> {
    const { client, id } = this;
    const mark = client.mark();
    const idle_timeout = Math.round(client.random.between(100, 900));
    const body = { metadata: { mark }, idle_timeout, ...more };
    const expected = { session_id: id, metadata: { mark }, idle_timeout };
    client.check(await client.ask(at`PATCH /sessions/${id}`, { body }), expected);
    client.check(await client.ask(at`GET /sessions/${id}`), expected);
  }

  async close(): Promise<void> {
    const { client, id } = this;
    await client.ask(at`DELETE /sessions/${id}`);
    client.check(await client.ask(at`GET /sessions/${id}`), {
      status: "ended",
      reason: client.watch.isCalm ? "deleted" : (is: unknown) => is !== null,
    });
    const asked = { body: { code: "1" }, expect: [409] };
    const refused = await client.ask(at`POST /sessions/${id}/execute`, asked);
    client.check(refused, { code: "session_ended", session_id: id });
  }
}

const killed = "failed/interpreter_ended";
/** How a call ends whose session a fault has ended. */
const lostCall = [
  "failed/internal_error",
  "failed/docker_error",
  "cancelled/cancelled",
  "timeout/startup_timeout",
];

async function useSession(client: Client): Promise<void> {
  const session = await Session.open(client, { wait: 60 });
  await client.unlessLost(session.id, () => workIn(session));
}

async function workIn(session: Session): Promise<void> {
  const { client, mark, id } = session;
  await client.until(at`GET /sessions/${id}?wait=30`, { status: "ready" });
  const [x, quoted] = [`x = "x of ${mark}"`, `'x of ${mark}'`];
  await session.call(`${x}\nx`, quoted);
  await session.call('import os; os.environ["MARK"]', `'env of ${mark}'`);
  await session.patch();

  // Files.
  const [name, content] = [`file of ${mark}.txt`, `content of ${mark}`];
  await client.ask(at`PUT /sessions/${id}/files/${name}`, { body: content, expect: [204] });
  await client.ask(at`GET /sessions/${id}/files/${name}`, { text: content });
  await client.ask(at`HEAD /sessions/${id}/files/${name}`);
  await session.call(`open(${JSON.stringify(name)}).read()`, `'${content}'`);
  client.check(await client.ask(at`GET /sessions/${id}/files`), { items: some({ path: name }) });
  await client.ask(at`DELETE /sessions/${id}/files/${name}`, { expect: [204] });
  await client.ask(at`GET /sessions/${id}/files/${name}`, { expect: [404] });

  // Another interpreter.
  const made = await client.ask(at`POST /sessions/${id}/contexts`);
  const context = made.json["context_id"] as string;
  await session.call(`x = "other of ${mark}"\nx`, `'other of ${mark}'`, ["succeeded"], { context });
  await session.call("x", quoted);
  client.check(await client.ask(at`GET /sessions/${id}/contexts`), {
    items: [{ context_id: "default" }, { context_id: context }],
  });
  await client.ask(at`DELETE /sessions/${id}/contexts/${context}`, { expect: [204] });

  // Calls that are ended keep the variables.
  const interrupt = at`POST /sessions/${id}/interrupt`;
  client.check(await client.ask(interrupt), { job_id: null });
  const code = `# long call of ${mark}\nprint("begun", flush=True)\nimport time\ntime.sleep(60)`;
  const body = { code, metadata: { mark } };
  const long = await client.ask(at`POST /sessions/${id}/execute/async`, { body });
  const call = long.json["job_id"] as string;
  client.acknowledge(call, ["cancelled/cancelled", ...(client.watch.isCalm ? [] : lostCall)]);
  const begun = { status: (is: string) => is !== "queued" };
  const running = await client.until(at`GET /jobs/${call}`, begun);
  client.loseIf(running.json["status"] !== "running", "a call ended early");
  client.check(running, { status: "running" });
  await sleep(client.random.between(0, 300));
  let endMs = performance.now();
  if (client.random.next() < 0.5) client.check(await client.ask(interrupt), { job_id: call });
  else await client.ask(at`POST /jobs/${call}/cancel`);
  await untilEnded(client, call);
  checkEnd(client, await client.ask(at`GET /executions/${call}`), ["cancelled/cancelled"]);
  await session.callAfter(endMs, "x", quoted, x);
  endMs = performance.now();
  const hungUp = { body: { code: "import time\ntime.sleep(60)", metadata: { mark } } };
  const afterMs = client.random.between(5, 400);
  await client.hangUp(at`POST /sessions/${id}/execute`, hungUp, afterMs);
  await session.callAfter(endMs, "x", quoted, x);
  const restarted = await client.ask(at`POST /sessions/${id}/restart`, { body: {} });
  client.loseIf(restarted.json["success"] !== true, "a restart");
  client.check(restarted, { success: true });
  await session.call("x", null, ["failed/name_error"]);

  const list = await client.ask(at`GET /executions?session_id=${id}&limit=100`);
  for (const one of list.json["items"] as { metadata?: Json }[])
    client.check(list, true, one.metadata === undefined || one.metadata["mark"] === mark);
  await session.close();
}

/** Sessions of a job type that no agent serves: they cost no agent anything, so there can be many. */
async function changeWaiting(client: Client): Promise<void> {
  const session = await Session.open(client, { job_type: "nowhere", wait: 0 });
  const times = client.random.between(3, 12);
  for (let n = 0; n < times; n++) {
    await session.patch({ lifetime: Math.round(client.random.between(600, 3000)) });
    if (client.random.next() >= 0.2) continue;
    client.check(await client.ask(at`GET /sessions?limit=100&status=queued`), {
      items: some({ session_id: session.id }),
    });
  }
  await session.close();
}

async function hearOfEnd(client: Client): Promise<void> {
  const { tenant } = client;
  const start = await client.ask(at`GET /webhooks/events`);
  const job = printJob(client);
  const callback_url = `${tenant.receiver.url}/hook`;
  const id = await submit(client, { ...job, request: { ...job.request, callback_url } });
  let cursor = start.json["cursor"] as string;
  for (let isHeard = false; !isHeard;) {
    const page = await client.ask(at`GET /webhooks/events?after=${cursor}&wait=20`);
    const items = page.json["items"] as { event: { data: Json } }[];
    for (const { event } of items) {
      client.check(page, tenant.name, event.data["tenant"]);
      isHeard ||= event.data["job_id"] === id;
    }
    const record = await client.ask(at`GET /executions/${id}`);
    const endedAt = record.json["ended_at"] as string | null;
    const isLate = endedAt !== null && Date.parse(endedAt) < Date.now() - 30_000;
    client.loseIf(!isHeard && isLate, "an event came late");
    client.check(page, false, !isHeard && isLate && items.length === 0);
    cursor = page.json["cursor"] as string;
  }
  const deliveries = at`GET /webhooks/deliveries?job_id=${id}`;
  const delivered = { items: some({ status: "delivered", callback_url }) };
  const list = await client.until(deliveries, delivered);
  const all = list.json["items"] as Json[];
  const { id: delivery } = all.find((one) => one["callback_url"] === callback_url) as {
    id: string;
  };
  await client.ask(at`POST /webhooks/deliveries/${delivery}/resend`);
  await client.until(deliveries, delivered);
  const calls = tenant.receiver.received.filter(
    ({ event }) => event.data.job_id === id && event.data.metadata?.["mark"] === job.mark,
  );
  client.check(list, (n: number) => n >= 2, calls.length);
}

/** Lists by pages: each shows this tenant's own. */
async function readLists(client: Client): Promise<void> {
  const { tenant, random } = client;
  const status = random.pick(["succeeded", "failed", "cancelled", "timeout"]);
  let from = "";
  const seen = new Set<string>();
  for (let n = 0; n < 4; n++) {
    const page = await client.ask(
      at([`GET /executions?status=${status}&limit=20&view=full${from}`]),
    );
    for (const one of page.json["items"] as Json[]) {
      const id = one["execution_id"] as string;
      client.check(page, { status }, one);
      client.check(page, false, seen.has(id));
      client.check(page, true, client.owns(one));
      seen.add(id);
      from = `&before=${id}`;
    }
    if (!page.json["has_more"]) break;
  }
  client.check(await client.ask(at`GET /key`), { tenant: tenant.name });
  client.check(await client.ask(at`GET /usage`), {
    tenant: tenant.name,
    usage: { queued: (n: number) => n >= 0, running: (n: number) => n >= 0 },
  });
  await client.ask(at`GET /sessions?limit=20`);
  await client.ask(at`GET /webhooks/deliveries?limit=20`);
  await client.ask(at`GET /job-types`);
  await client.ask(at`GET /job-types/${"default"}`);
}

async function makeJobType(client: Client): Promise<void> {
  const job = printJob(client);
  const name = `${client.tenant.name}.t${newId().slice(0, 8)}`;
  const body = { extends: "small", env: { MARK: job.mark } };
  client.check(await client.ask(at`PUT /job-types/${name}`, { body }), { name });
  const request = { ...job.request, job_type: name };
  const id = await submit(client, { ...job, request });
  await checkEnded(client, id, { ...job, request });
  const gone = client.watch.isCalm ? [200] : [200, 404];
  await client.ask(at`DELETE /job-types/${name}`, { expect: gone });
  await client.ask(at`GET /job-types/${name}`, { expect: [404] });
}

async function readService(client: Client): Promise<void> {
  for (const path of ["/health", "/health/live", "/health/ready", "/pool/stats", "/pool/history"])
    await client.ask(at([`GET ${path}`]));
  // Its examples have ids, which are of nobody.
  for (const path of ["/docs", "/openapi.json"])
    await client.ask(at([`GET ${path}`]), { seesAll: true });
  const metrics = await client.ask(at`GET /metrics`);
  client.check(metrics, true, metrics.text.includes("airlock_executions_total"));
}

/** All operations of a tenant's clients. */
export const operations: readonly Operation[] = [
  ...jobOperations,
  ...facadeOperations,
  { name: "uses a session", weight: 3, ...withPlace(useSession) },
  { name: "changes a session that waits", weight: 12, run: changeWaiting },
  { name: "hears of a job's end", weight: 3, run: hearOfEnd },
  { name: "makes a job type", weight: 2, run: makeJobType },
  { name: "reads lists", weight: 4, run: readLists },
  { name: "reads the state of the service", weight: 2, run: readService },
];

const use = (key: unknown) => ({ isKeyless: true, headers: { "X-API-Key": key as string } });

async function useKeys(client: Client): Promise<void> {
  const name = `t${newId()}`;
  const body = { name, tenant: name, scopes: ["run", "read"] };
  const made = await client.ask(at`POST /keys`, { body });
  const id = made.json["id"] as string;
  await client.insist(at`GET /key`, use(made.json["key"]));
  const limits = {
    max_queued: 0,
    max_running: 1,
    max_stored_bytes: null,
    max_cpu_s_day: null,
    max_requests: null,
  };
  client.check(await client.ask(at`PUT /tenants/${name}`, { body: limits }), { limits });
  client.check(await client.ask(at`GET /tenants/${name}`), { limits });
  const over = { ...use(made.json["key"]), body: { code: "1" }, expect: [429] };
  const refused = await client.insist(at`POST /execute/async`, over);
  client.check(refused, { code: "quota_exceeded", quota: "max_queued", limit: 0, used: 0 });
  const rotated = await client.ask(at`POST /keys/${id}/rotate`, { body: { old_valid_s: 60 } });
  for (const key of [made.json["key"], rotated.json["key"]])
    await client.insist(at`GET /usage`, use(key));
  await client.ask(at`POST /keys/${id}/revoke`);
  // Within a second.
  await sleep(1500);
  await client.insist(at`GET /key`, { ...use(rotated.json["key"]), expect: [401] });
  client.check(await client.ask(at`GET /keys?tenant=${name}`), {
    keys: [{ id, tenant: name, revoked_at: (when: unknown) => when !== null }],
  });
  client.check(await client.ask(at`GET /tenants`), { tenants: some({ name }) });
  const actions = ["key.revoke", "key.rotate", "tenant.limits", "key.create"];
  client.check(await client.ask(at`GET /audit?tenant=${name}`), {
    items: actions.map((action) => ({ action })),
  });
}

const hash = (text: string): string => createHash("sha256").update(text).digest("hex");

async function inviteHost(client: Client): Promise<void> {
  const name = `host-${newId()}`;
  const invited = await client.ask(at`POST /hosts/invitations`, { body: { name } });
  const body = { code: invited.json["code"], token_sha256: hash(`ala_${hash(name)}`), name };
  const joined = await client.ask(at`POST /agent/v1/join`, { body, isKeyless: true });
  const { id } = joined.json["agent"] as { id: string };
  await client.ask(at`POST /hosts/${id}/rotate`);
  await client.ask(at`POST /hosts/${id}/revoke`);
  client.check(await client.ask(at`GET /hosts`), {
    hosts: some({ id, name, revoked_at: (when: unknown) => when !== null }),
  });
}

async function drainAgent(client: Client): Promise<void> {
  const stats = await client.ask(at`GET /pool/stats`);
  const [agent] = stats.json["agents"] as { id: string }[];
  if (agent === undefined) return;
  try {
    await client.ask(at`POST /agents/${agent.id}/drain`);
  } finally {
    // An agent that is drained for good would end the soak.
    await client.insist(at`POST /agents/${agent.id}/resume`, { expect: [200, 404] });
  }
}

async function buildImage(client: Client): Promise<void> {
  const job_type = "built";
  // On a busy machine, longer than any other request; `fetch` itself waits for 300 s.
  const built = await client.ask(at`POST /job-types/${job_type}/build`, { patienceMs: 280_000 });
  client.check(built, { status: "built", job_type });
  client.check(await client.ask(at`GET /job-types/${job_type}/build`), { job_type });
}

async function readAllRecords(client: Client): Promise<void> {
  const asked = { headers: { "X-Airlock-Tenant": "*" }, seesAll: true };
  const page = await client.ask(at`GET /executions?limit=100`, asked);
  for (const one of page.json["items"] as Json[]) {
    const owner = client.watch.tenants.find(({ name }) => name === one["tenant"]);
    client.check(page, true, owner !== undefined && client.owns(one, owner));
  }
}

/** What an operator does, with things of its own and in a tenant that nobody else uses. */
export const operatorOperations: readonly Operation[] = [
  { name: "makes, rotates and revokes a key, and sets limits", weight: 4, run: useKeys },
  { name: "invites a host, and revokes it", weight: 2, run: inviteHost },
  { name: "drains an agent for a moment", weight: 2, run: drainAgent },
  { name: "builds an image", weight: 1, run: buildImage },
  { name: "reads the records of all tenants", weight: 2, run: readAllRecords },
];
