import { createHmac } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client as Database } from "@libsql/client";
import { openApiCheck } from "../../../api/testing/openapi-check.ts";
import { endpointsOf, type OpenApiDocument } from "../../../api/testing/openapi-document.ts";
import {
  type Answering,
  type Receiver,
  receiverSecret,
  startReceiver,
} from "../../../api/testing/receiver.ts";
import { jsonRequest } from "../../operate/command.ts";
import { checkLedger, type Ledger } from "../../testing/ledger.ts";
import {
  at,
  Client,
  count,
  type Json,
  newToken,
  type Operation,
  type Tenant,
  type Watch,
} from "./client.ts";
import { operations, operatorOperations } from "./operations.ts";
import { random } from "./plan.ts";

/** The first one has the keys of the configuration, and requests of protocols without keys. */
const names = ["default", "maps", "search"] as const;
const clientsOfEach = 8;

const soakKeys = {
  operator: "soak-operator-key-0123456789",
  tenant: "soak-key-0123456789abcdef",
};

/** Calls are signed for each tenant with a secret of its own. */
function secretOf(tenant: string): string {
  if (tenant === "default") return receiverSecret;
  const key = Buffer.from(receiverSecret.slice("whsec_".length), "base64");
  return `whsec_${createHmac("sha256", key).update(tenant).digest("base64")}`;
}

/** Receivers of the tenants' webhooks, and the configuration of a service that clients of several tenants use. */
export async function prepareTenants() {
  /** The most calls that a receiver had at once. */
  let most = 0;
  const answering = (): Answering => {
    const open = new Map<string, number>();
    return (response, { path }) => {
      count(open, path);
      most = Math.max(most, open.get(path)!);
      setTimeout(() => {
        open.set(path, open.get(path)! - 1);
        response.writeHead(204).end();
      }, 20);
    };
  };
  const receivers = new Map<string, Receiver>();
  for (const name of names)
    receivers.set(name, await startReceiver(answering(), 0, secretOf(name)));
  const [, second] = names;
  const endpoint = {
    url: `${receivers.get(second)!.url}/endpoint`,
    tenants: [second],
    secrets: [secretOf(second)],
  };
  return {
    receivers,
    mostCallsAtOnce: () => most,
    vars: {
      AIRLOCK_API_AUTH_ENABLED: "true",
      AIRLOCK_API_KEYS: soakKeys.tenant,
      AIRLOCK_OPERATOR_KEYS: soakKeys.operator,
      AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
      AIRLOCK_MAX_QUEUE_SIZE: "2000",
      AIRLOCK_COMPAT: "sandbox-fusion,piston,dify,librechat,e2b",
      AIRLOCK_COMPAT_KEY: soakKeys.tenant,
      AIRLOCK_TENANT_JOB_TYPES: "1000",
      AIRLOCK_JOB_TYPES: JSON.stringify({
        small: { memory_limit: "64m" },
        nowhere: { labels: { place: "nowhere" } },
        built: {},
      }),
      AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify({ second: endpoint }),
      AIRLOCK_WEBHOOK_CALLBACKS: JSON.stringify({
        hosts: [...receivers.values()].map(({ url }) => url),
        secrets: [receiverSecret],
      }),
      AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "127.0.0.1",
    },
    [Symbol.asyncDispose]: async () => {
      for (const receiver of receivers.values()) await receiver.close();
    },
  };
}
type Prepared = Awaited<ReturnType<typeof prepareTenants>>;

type LoadOptions = {
  readonly urls: readonly string[];
  readonly prepared: Prepared;
  readonly seed: number;
  readonly isCalm: boolean;
  /** Sessions that the agents hold at once. */
  readonly places: number;
};

export type Load = {
  readonly watch: Watch;
  /** Begins nothing more; resolves once every client has done what it began. */
  readonly stop: () => Promise<void>;
};

/** Clients of three tenants, and an operator, that do everything that can be done with a service at the same time. */
export async function startLoad({
  urls,
  prepared,
  seed,
  isCalm,
  places,
}: LoadOptions): Promise<Load> {
  const end = new AbortController();
  const operator = async <T>(method: string, path: string, body?: object): Promise<T> => {
    const answer = await fetch(
      urls[0] + path,
      jsonRequest(method, body, { "X-API-Key": soakKeys.operator }),
    );
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as T;
  };
  const tenantOf = (name: string, key: string): Tenant => {
    const receiver = prepared.receivers.get(name) ?? prepared.receivers.get("default")!;
    return { name, key, token: newToken(), receiver };
  };
  const tenants: Tenant[] = [];
  for (const name of names) {
    const scopes = ["run", "read", "build", "monitor"];
    const { key } = await operator<{ key: string }>("POST", "/keys", {
      name: "soak",
      tenant: name,
      scopes,
    });
    tenants.push(tenantOf(name, name === "default" ? soakKeys.tenant : key));
  }
  const document = await operator<OpenApiDocument>("GET", "/openapi.json");
  const watch: Watch = {
    urls,
    tenants,
    document: openApiCheck(document),
    isCalm,
    places,
    owners: new Map(),
    acknowledged: new Map(),
    lettersRemoved: new Set(),
    performed: new Map(),
    answered: new Map(),
    lost: new Map(),
    violations: [],
    leaks: [],
    requests: 0,
    checks: 0,
    end: end.signal,
  };
  const needed = endpointsOf(document).map(
    ({ method, path }) => `${method} ${path.replaceAll(/\{\w+\}/g, "{}")}`,
  );

  const deal = dealer(operations, seed, watch);
  const working = tenants.flatMap((tenant, t) =>
    Array.from({ length: clientsOfEach }, (_, n) =>
      work(new Client(watch, tenant, n, seed + 100 * t + n + 1), deal),
    ),
  );
  const own = new Client(watch, tenantOf("operator", soakKeys.operator), 0, seed);
  working.push(work(own, dealer(operatorOperations, seed, watch)));
  return {
    watch,
    stop: async () => {
      end.abort();
      await Promise.all(working);
      // docs/guides/webhooks.md
      if (prepared.mostCallsAtOnce() > 4 * urls.length) {
        watch.violations.push(`a receiver had ${prepared.mostCallsAtOnce()} calls at once`);
      }
      checkWebhooks(watch);
      // Where things break, an operation may never have gone well.
      if (!isCalm) return;
      for (const { name } of [...operations, ...operatorOperations])
        if (!watch.performed.has(name)) watch.violations.push(`"${name}" never went well`);
      for (const endpoint of needed)
        if (!watch.answered.has(endpoint))
          watch.violations.push(`${endpoint} was never answered well`);
    },
  };
}

async function work(client: Client, deal: Dealer): Promise<void> {
  while (!deal.isOver()) {
    const operation = deal.next(client);
    if (operation && (await client.perform(operation))) continue;
    if (operation) deal.giveBack(operation);
    // What fails at once would keep the others out.
    await sleep(1000);
  }
}

type Dealer = {
  /** Undefined if there is none that is possible now. */
  readonly next: (client: Client) => Operation | undefined;
  readonly giveBack: (operation: Operation) => void;
  readonly isOver: () => boolean;
};

/** The first one that is possible now. */
function take(from: Operation[], client: Client): Operation | undefined {
  const n = from.findIndex(({ isPossible }) => isPossible?.(client) ?? true);
  return n < 0 ? undefined : from.splice(n, 1)[0];
}

/** Deals operations like cards: first each of them once, then as often as their weights say. */
function dealer(all: readonly Operation[], seed: number, { end, isCalm }: Watch): Dealer {
  const { next } = random(seed);
  const least = Math.min(...all.map(({ weight }) => weight));
  const cards = all.flatMap((one) => Array<Operation>(Math.round(one.weight / least)).fill(one));
  const first = shuffled(all, next);
  let deck: Operation[] = [];
  return {
    next(client) {
      const operation = take(first, client);
      if (operation || end.aborted) return operation;
      // What is possible for nobody now is dealt anew.
      return take(deck, client) ?? take((deck = shuffled(cards, next)), client);
    },
    giveBack: (operation) => void first.push(operation),
    isOver: () => end.aborted && (first.length === 0 || !isCalm),
  };
}

function shuffled<T>(items: readonly T[], next: () => number): T[] {
  return items
    .map((item) => [next(), item] as const)
    .sort(([a], [b]) => a - b)
    .map(([, item]) => item);
}

function checkWebhooks({ tenants, violations }: Watch): void {
  for (const { name, token, receiver } of tenants) {
    for (const { event, body } of receiver.received) {
      const mark = event.data.metadata?.["mark"];
      const isOwn = event.data.tenant === name && (mark === undefined || mark.startsWith(token));
      if (!isOwn) violations.push(`the receiver of ${name} got ${body}`);
    }
  }
}

/** Longer than the longest job of a soak runs twice, with its leases and the breaker's rest; and where nothing breaks. */
const [restWithinMs, calmRestMs] = [300_000, 120_000];

/** What must come to nothing before the books can be closed: its name, and how many there are. */
const open: Readonly<Record<string, string>> = {
  executions: "SELECT count(*) AS n FROM executions WHERE status IN ('queued', 'running')",
  sessions: "SELECT count(*) AS n FROM sessions WHERE status <> 'ended'",
  "webhook events": "SELECT count(*) AS n FROM webhook_events WHERE is_fanned_out = 0",
  "webhook deliveries": "SELECT count(*) AS n FROM webhook_deliveries WHERE status = 'pending'",
};

/** Resolves with what is still open when all has ended, or when it is given up. */
async function untilAtRest(db: Database, { isCalm }: Watch): Promise<string[]> {
  const deadline = performance.now() + (isCalm ? calmRestMs : restWithinMs);
  for (;;) {
    const left: string[] = [];
    for (const [what, question] of Object.entries(open)) {
      const n = await db.execute(question).then(
        ({ rows }) => Number(rows[0]?.["n"]),
        () => Infinity,
      );
      if (n > 0) left.push(`${n} ${what} have not ended`);
    }
    if (left.length === 0 || performance.now() > deadline) return left;
    await sleep(200);
  }
}

/** Counts of the service, and the same from the rows of the database. */
async function recount(db: Database, watch: Watch): Promise<string[]> {
  const faults: string[] = [];
  const rowsOf = async (sql: string, ...args: string[]) => (await db.execute({ sql, args })).rows;
  const numberOf = async (sql: string, ...args: string[]) =>
    Number((await rowsOf(sql, ...args))[0]?.["n"]);
  const compare = (what: string, told: unknown, counted: unknown): void => {
    watch.checks += 1;
    if (told !== counted)
      faults.push(`${what} is ${String(told)}, and a recount has ${String(counted)}`);
  };
  for (const tenant of watch.tenants) {
    const client = new Client(watch, tenant, -1, 0);
    const { name } = tenant;
    const { usage } = (await client.insist(at`GET /usage`)).json as { usage: Json };
    const [row] = await rowsOf("SELECT stored_bytes FROM tenants WHERE name = ?", name);
    compare(`stored_bytes of ${name}`, usage["stored_bytes"], row?.["stored_bytes"]);
    for (const what of ["queued", "running"]) compare(`${what} of ${name}`, usage[what], 0);
    const letters = await numberOf("SELECT count(*) AS n FROM dead_letters WHERE tenant = ?", name);
    compare(
      `dlq/stats of ${name}`,
      (await client.insist(at`GET /dlq/stats`)).json["total"],
      letters,
    );
    const heard = new Set(tenant.receiver.received.map(({ path, id }) => `${path} ${id}`));
    const sent = "SELECT count(*) AS n FROM webhook_deliveries WHERE tenant = ?";
    compare(`webhooks that the receiver of ${name} got`, heard.size, await numberOf(sent, name));
    let listed = 0;
    for (let from = "", isMore = true; isMore;) {
      const place = at([`GET /executions?limit=1000&kind=all&fields=status${from}`]);
      const page = (await client.insist(place)).json;
      const items = page["items"] as Json[];
      listed += items.length;
      from = `&before=${items.at(-1)?.["execution_id"] as string}`;
      isMore = page["has_more"] as boolean;
    }
    const executions = await numberOf(
      "SELECT count(*) AS n FROM executions WHERE tenant = ?",
      name,
    );
    compare(`the list of executions of ${name}`, listed, executions);
  }
  const client = new Client(watch, watch.tenants[0]!, -1, 0);
  const { queue_stats } = (await client.insist(at`GET /health`)).json as { queue_stats: Json };
  compare("pending", queue_stats["pending"], 0);
  compare("running", queue_stats["running"], 0);
  const metrics = (await client.insist(at`GET /metrics`)).text;
  const metric = (name: string): number =>
    [...metrics.matchAll(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, "gm"))].reduce(
      (sum, [, n]) => sum + Number(n),
      0,
    );
  for (const [name, question] of [
    ["airlock_dead_letters", "SELECT count(*) AS n FROM dead_letters"],
    ["airlock_queued_executions", "SELECT 0 AS n"],
    ["airlock_wanted_slots", "SELECT 0 AS n"],
    ["airlock_running_executions", "SELECT 0 AS n"],
    ["airlock_sessions", "SELECT 0 AS n"],
    [
      "airlock_executions_total",
      "SELECT count(*) AS n FROM ledger WHERE became NOT IN ('queued', 'running', 'returned')",
    ],
    [
      "airlock_file_bytes",
      "SELECT coalesce((SELECT sum(size_bytes) FROM files), 0) + coalesce((SELECT sum(file_bytes) FROM removals), 0) AS n",
    ],
  ] as const)
    compare(name, metric(name), await numberOf(question));
  return faults;
}

/** Checks, once all has ended, that each job ended once and as it should, and that what is counted equals a recount. */
export async function closeBooks(db: Database, watch: Watch): Promise<Ledger> {
  // What an operation has left that failed, or whose answer a fault took.
  for (const tenant of watch.tenants) {
    const client = new Client(watch, tenant, -1, 0);
    for (const status of ["queued", "starting", "ready"]) {
      const list = await client.insist(at`GET /sessions?status=${status}&limit=1000`);
      for (const { session_id: id } of list.json["items"] as { session_id: string }[])
        await client.insist(at`DELETE /sessions/${id}`, { expect: [204, 404] });
    }
  }
  const left = await untilAtRest(db, watch);
  const ledger = await checkLedger(db, [...watch.acknowledged.values()], watch.lettersRemoved);
  const recounted = await recount(db, watch);
  return { ...ledger, faults: [...left, ...ledger.faults, ...recounted] };
}

/** Counts as one line. */
export const list = (counts: ReadonlyMap<string, number>): string =>
  [...counts]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([what, n]) => `${n} ${what}`)
    .join(", ");
