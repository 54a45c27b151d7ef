import { setTimeout as sleep } from "node:timers/promises";
import type { Client as Database } from "@libsql/client";
import { checkLedger, type Ledger } from "../testing/ledger.ts";
import { Client, type Json, type Watch } from "./client.ts";

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
    const { usage } = (await client.insist("GET /usage")).json as { usage: Json };
    const [row] = await rowsOf("SELECT stored_bytes FROM tenants WHERE name = ?", name);
    compare(`stored_bytes of ${name}`, usage["stored_bytes"], row?.["stored_bytes"]);
    for (const what of ["queued", "running"]) compare(`${what} of ${name}`, usage[what], 0);
    const letters = await numberOf("SELECT count(*) AS n FROM dead_letters WHERE tenant = ?", name);
    compare(`dlq/stats of ${name}`, (await client.insist("GET /dlq/stats")).json["total"], letters);
    const heard = new Set(tenant.receiver.received.map(({ path, id }) => `${path} ${id}`));
    const sent = "SELECT count(*) AS n FROM webhook_deliveries WHERE tenant = ?";
    compare(`webhooks that the receiver of ${name} got`, heard.size, await numberOf(sent, name));
    let listed = 0;
    for (let before = "", isMore = true; isMore;) {
      const query = {
        limit: 1000,
        kind: "all",
        fields: "status",
        ...(before !== "" && { before }),
      };
      const page = (await client.insist("GET /executions", { query })).json;
      const items = page["items"] as Json[];
      listed += items.length;
      before = items.at(-1)?.["execution_id"] as string;
      isMore = page["has_more"] as boolean;
    }
    const executions = await numberOf(
      "SELECT count(*) AS n FROM executions WHERE tenant = ?",
      name,
    );
    compare(`the list of executions of ${name}`, listed, executions);
  }
  const client = new Client(watch, watch.tenants[0]!, -1, 0);
  const { queue_stats } = (await client.insist("GET /health")).json as { queue_stats: Json };
  compare("pending", queue_stats["pending"], 0);
  compare("running", queue_stats["running"], 0);
  const metrics = (await client.insist("GET /metrics")).text;
  const metric = (name: string): number =>
    [...metrics.matchAll(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, "gm"))].reduce(
      (sum, [, n]) => sum + Number(n),
      0,
    );
  for (const [name, question] of [
    ["airlock_dead_letters", "SELECT count(*) AS n FROM dead_letters"],
    ["airlock_queued_executions", "SELECT 0 AS n"],
    ["airlock_running_executions", "SELECT 0 AS n"],
    ["airlock_sessions", "SELECT 0 AS n"],
    [
      "airlock_executions_total",
      "SELECT count(*) AS n FROM ledger WHERE became NOT IN ('queued', 'running')",
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
      const list = await client.insist("GET /sessions", { query: { status, limit: 1000 } });
      for (const { session_id: id } of list.json["items"] as { session_id: string }[])
        await client.insist("DELETE /sessions/{id}", { path: { id }, expect: [204, 404] });
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
