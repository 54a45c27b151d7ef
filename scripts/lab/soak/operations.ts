import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Client,
  type Expected,
  type Json,
  LostToFault,
  newId,
  type Operation,
  withPlace,
} from "./client.ts";
import { facadeOperations } from "./facades.ts";
import { checkEnd, jobOperations, printJob, submit, untilEnded } from "./jobs.ts";

type Names = Readonly<Record<string, string>>;

/** A session of a client, with what its model says of it. */
class Session {
  readonly client: Client;
  readonly mark: string;
  readonly path: { readonly id: string };

  constructor(client: Client, mark: string, id: string) {
    this.client = client;
    this.mark = mark;
    this.path = { id };
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
    const made = await client.ask("POST /sessions", { body });
    client.check(made, { metadata: { mark }, contexts: ["default"], calls: 0 });
    return new Session(client, mark, made.json["session_id"] as string);
  }

  ask(endpoint: string, body?: unknown, expect?: readonly number[], more: Names = {}) {
    const asked = { path: { ...this.path, ...more }, body, ...(expect && { expect }) };
    return this.client.ask(endpoint.replace("/", "/sessions/{id}/").replace(/\/$/, ""), asked);
  }

  /** Runs a cell, and checks how it ends and what it shows. Resolves with how it ended. */
  async call(
    code: string,
    shown: string | null,
    ends = ["succeeded"],
    more: Json = {},
  ): Promise<string> {
    const { client, mark } = this;
    const body = { code: `# call of ${mark}\n${code}`, metadata: { mark }, ...more };
    const answer = await this.ask("POST /execute", body);
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
    const mark = this.client.mark();
    const idle_timeout = Math.round(this.client.random.between(100, 900));
    const changed = await this.ask("PATCH /", { metadata: { mark }, idle_timeout, ...more });
    const expected = { session_id: this.path.id, metadata: { mark }, idle_timeout };
    this.client.check(changed, expected);
    this.client.check(await this.ask("GET /"), expected);
  }

  async close(): Promise<void> {
    await this.ask("DELETE /");
    const gone = await this.ask("GET /");
    this.client.check(gone, {
      status: "ended",
      reason: this.client.watch.isCalm ? "deleted" : (is: unknown) => is !== null,
    });
    const refused = await this.ask("POST /execute", { code: "1" }, [409]);
    this.client.check(refused, { code: "session_ended", session_id: this.path.id });
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
  await client.unlessLost(session.path.id, () => workIn(session));
}

async function workIn(session: Session): Promise<void> {
  const { client } = session;
  const { mark, path } = session;
  await client.until("GET /sessions/{id}", { path, query: { wait: 30 } }, { status: "ready" });
  const [x, quoted] = [`x = "x of ${mark}"`, `'x of ${mark}'`];
  await session.call(`${x}\nx`, quoted);
  await session.call('import os; os.environ["MARK"]', `'env of ${mark}'`);
  await session.patch();

  // Files.
  const [name, content] = [`file of ${mark}.txt`, `content of ${mark}`];
  const at = { path: name };
  await session.ask("PUT /files/{path}", content, [204], at);
  const file = await session.ask("GET /files/{path}", undefined, [200], at);
  client.check(file, content, file.text);
  await session.ask("HEAD /files/{path}", undefined, [200], at);
  await session.call(`open(${JSON.stringify(name)}).read()`, `'${content}'`);
  const files = await session.ask("GET /files");
  client.check(files, { items: (all: Json[]) => all.some((one) => one["path"] === name) });
  await session.ask("DELETE /files/{path}", undefined, [204], at);
  await session.ask("GET /files/{path}", undefined, [404], at);

  // Another interpreter.
  const made = await session.ask("POST /contexts");
  const context = made.json["context_id"] as string;
  await session.call(`x = "other of ${mark}"\nx`, `'other of ${mark}'`, ["succeeded"], { context });
  await session.call("x", quoted);
  const contexts = await session.ask("GET /contexts");
  client.check(contexts, { items: [{ context_id: "default" }, { context_id: context }] });
  await session.ask("DELETE /contexts/{context_id}", undefined, [204], { context_id: context });

  // Calls that are ended keep the variables.
  client.check(await session.ask("POST /interrupt"), { job_id: null });
  const code = `# long call of ${mark}\nprint("begun", flush=True)\nimport time\ntime.sleep(60)`;
  const long = await session.ask("POST /execute/async", { code, metadata: { mark } });
  const id = long.json["job_id"] as string;
  client.acknowledge(id, ["cancelled/cancelled", ...(client.watch.isCalm ? [] : lostCall)]);
  const running = await client.until(
    "GET /jobs/{id}",
    { path: { id } },
    { status: (is: string) => is !== "queued" },
  );
  const isLost = !client.watch.isCalm && running.json["status"] !== "running";
  if (isLost) throw new LostToFault("a call ended early");
  client.check(running, { status: "running" });
  await sleep(client.random.between(0, 300));
  let endMs = performance.now();
  if (client.random.next() < 0.5)
    client.check(await session.ask("POST /interrupt"), { job_id: id });
  else await client.ask("POST /jobs/{id}/cancel", { path: { id } });
  await untilEnded(client, id);
  const end = await client.ask("GET /executions/{id}", { path: { id } });
  checkEnd(client, end, ["cancelled/cancelled"]);
  await session.callAfter(endMs, "x", quoted, x);
  endMs = performance.now();
  const hungUp = { code: "import time\ntime.sleep(60)", metadata: { mark } };
  await client.hangUp(
    "POST /sessions/{id}/execute",
    { path, body: hungUp },
    client.random.between(5, 400),
  );
  await session.callAfter(endMs, "x", quoted, x);
  await session.ask("POST /restart", {});
  await session.call("x", null, ["failed/name_error"]);

  const list = await client.ask("GET /executions", { query: { session_id: path.id, limit: 100 } });
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
    if (client.random.next() < 0.2) {
      const list = await client.ask("GET /sessions", { query: { limit: 100, status: "queued" } });
      client.check(list, {
        items: (all: Json[]) => all.some((one) => one["session_id"] === session.path.id),
      });
    }
  }
  await session.close();
}

async function hearOfEnd(client: Client): Promise<void> {
  const { tenant, watch } = client;
  const start = await client.ask("GET /webhooks/events");
  const job = printJob(client);
  const hook = `${tenant.receiver.url}/hook`;
  const id = await submit(client, { ...job, request: { ...job.request, callback_url: hook } });
  let cursor = start.json["cursor"] as string;
  for (let isHeard = false; !isHeard;) {
    const query = { after: cursor, wait: 20 };
    const page = await client.ask("GET /webhooks/events", { query });
    const items = page.json["items"] as { event: { data: Json } }[];
    for (const { event } of items) {
      client.check(page, tenant.name, event.data["tenant"]);
      isHeard ||= event.data["job_id"] === id;
    }
    const record = await client.ask("GET /executions/{id}", { path: { id } });
    const endedAt = record.json["ended_at"] as string | null;
    const isLate = endedAt !== null && Date.parse(endedAt) < Date.now() - 30_000;
    if (!isHeard && isLate && !watch.isCalm) throw new LostToFault("an event came late");
    client.check(page, false, !isHeard && isLate && items.length === 0);
    cursor = page.json["cursor"] as string;
  }
  const ofJob = { query: { job_id: id } };
  const delivered = {
    items: (all: Json[]) =>
      all.some((one) => one["status"] === "delivered" && one["callback_url"] === hook),
  };
  const list = await client.until("GET /webhooks/deliveries", ofJob, delivered);
  const [delivery] = (list.json["items"] as Json[]).filter((one) => one["callback_url"] === hook);
  const path = { id: String(delivery!["id"]) };
  await client.ask("POST /webhooks/deliveries/{id}/resend", { path });
  await client.until("GET /webhooks/deliveries", ofJob, delivered);
  const calls = () =>
    tenant.receiver.received.filter(
      ({ event }) => event.data.job_id === id && event.data.metadata?.["mark"] === job.mark,
    );
  client.check(list, (n: number) => n >= 2, calls().length);
}

/** Lists by pages: each shows this tenant's own. */
async function readLists(client: Client): Promise<void> {
  const { tenant, random } = client;
  const status = random.pick(["succeeded", "failed", "cancelled", "timeout"]);
  let before = "";
  const seen = new Set<string>();
  for (let n = 0; n < 4; n++) {
    const query = { status, limit: 20, view: "full", ...(before !== "" && { before }) };
    const page = await client.ask("GET /executions", { query });
    for (const one of page.json["items"] as Json[]) {
      before = one["execution_id"] as string;
      client.check(page, { status }, one);
      client.check(page, false, seen.has(before));
      seen.add(before);
      const mark = (one["metadata"] as Json | undefined)?.["mark"] as string | undefined;
      client.check(page, true, mark === undefined || mark.startsWith(tenant.token));
    }
    if (!page.json["has_more"]) break;
  }
  client.check(await client.ask("GET /key"), { tenant: tenant.name });
  client.check(await client.ask("GET /usage"), {
    tenant: tenant.name,
    usage: { queued: (n: number) => n >= 0, running: (n: number) => n >= 0 },
  });
  await client.ask("GET /sessions", { query: { limit: 20 } });
  await client.ask("GET /webhooks/deliveries", { query: { limit: 20 } });
  await client.ask("GET /job-types");
  await client.ask("GET /job-types/{name}", { path: { name: "default" } });
}

async function readService(client: Client): Promise<void> {
  for (const path of ["/health", "/health/live", "/health/ready", "/pool/stats", "/pool/history"])
    await client.ask(`GET ${path}`);
  // Its examples have ids, which are of nobody.
  for (const path of ["/docs", "/openapi.json"]) await client.ask(`GET ${path}`, { seesAll: true });
  const metrics = await client.ask("GET /metrics");
  client.check(metrics, true, metrics.text.includes("airlock_executions_total"));
}

/** All operations of a tenant's clients. */
export const operations: readonly Operation[] = [
  ...jobOperations,
  ...facadeOperations,
  { name: "uses a session", weight: 3, ...withPlace(useSession) },
  { name: "changes a session that waits", weight: 12, run: changeWaiting },
  { name: "hears of a job's end", weight: 3, run: hearOfEnd },
  { name: "reads lists", weight: 4, run: readLists },
  { name: "reads the state of the service", weight: 2, run: readService },
];

/** What an operator does, with things of its own and in a tenant that nobody else uses. */
export const operatorOperations: readonly Operation[] = [
  {
    name: "makes, rotates and revokes a key, and sets limits",
    weight: 4,
    async run(client) {
      const name = `t${newId()}`;
      const path = { name };
      const made = await client.ask("POST /keys", {
        body: { name, tenant: name, scopes: ["run", "read"] },
      });
      const id = { id: made.json["id"] as string };
      const use = (key: unknown, endpoint: string, expect: number[], body?: Json) =>
        client.insist(endpoint, {
          isKeyless: true,
          headers: { "X-API-Key": key as string },
          ...(body && { body }),
          expect,
        });
      await use(made.json["key"], "GET /key", [200]);
      const limits = {
        max_queued: 0,
        max_running: 1,
        max_stored_bytes: null,
        max_cpu_s_day: null,
        max_requests: null,
      };
      client.check(await client.ask("PUT /tenants/{name}", { path, body: limits }), { limits });
      client.check(await client.ask("GET /tenants/{name}", { path }), { limits });
      const refused = await use(made.json["key"], "POST /execute/async", [429], { code: "1" });
      client.check(refused, { code: "quota_exceeded", quota: "max_queued", limit: 0, used: 0 });
      const rotated = await client.ask("POST /keys/{id}/rotate", {
        path: id,
        body: { old_valid_s: 60 },
      });
      for (const key of [made.json["key"], rotated.json["key"]])
        await use(key, "GET /usage", [200]);
      await client.ask("POST /keys/{id}/revoke", { path: id });
      // Within a second.
      await sleep(1500);
      await use(rotated.json["key"], "GET /key", [401]);
      const list = await client.ask("GET /keys", { query: { tenant: name } });
      client.check(list, {
        keys: [{ ...id, tenant: name, revoked_at: (at: unknown) => at !== null }],
      });
      client.check(await client.ask("GET /tenants"), {
        tenants: (all: Json[]) => all.some((one) => one["name"] === name),
      });
      const audit = await client.ask("GET /audit", { query: { tenant: name } });
      const actions = ["key.revoke", "key.rotate", "tenant.limits", "key.create"];
      client.check(
        audit,
        actions,
        (audit.json["items"] as Json[]).map((one) => one["action"] as Expected),
      );
    },
  },
  {
    name: "invites a host, and revokes it",
    weight: 2,
    async run(client) {
      const name = `host-${newId()}`;
      const invited = await client.ask("POST /hosts/invitations", { body: { name } });
      const token = `ala_${createHash("sha256").update(name).digest("hex")}`;
      const token_sha256 = createHash("sha256").update(token).digest("hex");
      const body = { code: invited.json["code"], token_sha256, name };
      const joined = await client.ask("POST /agent/v1/join", { body, isKeyless: true });
      const path = { id: (joined.json["agent"] as Json)["id"] as string };
      await client.ask("POST /hosts/{id}/rotate", { path });
      await client.ask("POST /hosts/{id}/revoke", { path });
      const list = await client.ask("GET /hosts");
      client.check(list, {
        hosts: (all: Json[]) =>
          all.some(
            (one) => one["id"] === path.id && one["name"] === name && one["revoked_at"] !== null,
          ),
      });
    },
  },
  {
    name: "drains an agent for a moment",
    weight: 2,
    async run(client) {
      const stats = await client.ask("GET /pool/stats");
      const [agent] = stats.json["agents"] as { id: string }[];
      if (agent === undefined) return;
      const path = { id: agent.id };
      try {
        await client.ask("POST /agents/{id}/drain", { path });
      } finally {
        // An agent that is drained for good would end the soak.
        await client.insist("POST /agents/{id}/resume", { path, expect: [200, 404] });
      }
    },
  },
  {
    name: "builds an image",
    weight: 1,
    async run(client) {
      const path = { name: "built" };
      // On a busy machine, longer than any other request; `fetch` itself waits for 300 s.
      const patienceMs = 280_000;
      const built = await client.ask("POST /job-types/{name}/build", { path, patienceMs });
      client.check(built, { status: "built", job_type: "built" });
      client.check(await client.ask("GET /job-types/{name}/build", { path }), {
        job_type: "built",
      });
    },
  },
  {
    name: "reads the records of all tenants",
    weight: 2,
    async run(client) {
      const headers = { "X-Airlock-Tenant": "*" };
      const page = await client.ask("GET /executions", {
        headers,
        query: { limit: 100 },
        seesAll: true,
      });
      for (const one of page.json["items"] as Json[]) {
        const owner = client.watch.tenants.find(({ name }) => name === one["tenant"]);
        const mark = (one["metadata"] as Json | undefined)?.["mark"] as string | undefined;
        client.check(
          page,
          true,
          owner !== undefined && (mark === undefined || mark.startsWith(owner.token)),
        );
      }
    },
  },
];
