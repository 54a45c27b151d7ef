import type { Client, Row } from "@libsql/client";
import { miscounted } from "../../api/testing/store-model.ts";

/** What a client of the service knows of a job that the service said yes to. */
export type Acknowledged = {
  readonly id: string;
  /** How it may end, as `status` or `status/error type`, when nothing breaks. */
  readonly ends: readonly string[];
  /** What it prints when it succeeds. */
  readonly stdout?: string;
};

export type Ledger = {
  /** Executions in the database, by how they ended. */
  readonly ended: ReadonlyMap<string, number>;
  readonly acknowledged: number;
  readonly deadLetters: number;
  /** Executions that were leased more than once. */
  readonly retried: number;
  /** What does not hold, one line each; empty when the books balance. */
  readonly faults: readonly string[];
};

const terminal = "('succeeded', 'failed', 'timeout', 'oom', 'cancelled')";

/**
 * Has the database itself write down every change of a status, and every change after an end. A lease that an agent gives
 * back as it leaves, before the code has started, is `returned`: it counts as no attempt.
 */
export async function startAudit(db: Client): Promise<void> {
  await db.batch(
    [
      `CREATE TABLE IF NOT EXISTS ledger (n INTEGER PRIMARY KEY AUTOINCREMENT, execution_id TEXT NOT NULL,
        was TEXT, became TEXT NOT NULL, lease_id TEXT)`,
      `CREATE INDEX IF NOT EXISTS ledger_execution ON ledger (execution_id)`,
      `CREATE TRIGGER IF NOT EXISTS ledger_inserted AFTER INSERT ON executions BEGIN
        INSERT INTO ledger (execution_id, was, became) VALUES (NEW.id, NULL, NEW.status); END`,
      `CREATE TRIGGER IF NOT EXISTS ledger_updated AFTER UPDATE ON executions
        WHEN OLD.status <> NEW.status OR OLD.status IN ${terminal} BEGIN
        INSERT INTO ledger (execution_id, was, became, lease_id)
        VALUES (NEW.id, OLD.status, iif(NEW.attempt < OLD.attempt, 'returned', NEW.status), NEW.lease_id); END`,
    ],
    "write",
  );
}

const leases = "sum((became = 'running') - (became = 'returned'))";
const letterMissing = "is missing among the dead letters, or there twice";

/** Questions whose answers must be empty: rows are the executions for which it does not hold. */
const questions: Record<string, string> = {
  "has not ended": `SELECT id, status AS what FROM executions WHERE status NOT IN ${terminal}`,
  "did not end exactly once": `
    SELECT id, count(n) AS what FROM executions LEFT JOIN ledger
      ON execution_id = id AND became IN ${terminal}
    GROUP BY id HAVING count(n) <> 1`,
  "changed after its end": `SELECT execution_id AS id, became AS what FROM ledger WHERE was IN ${terminal}`,
  "was leased more than twice": `
    SELECT execution_id AS id, ${leases} AS what FROM ledger GROUP BY execution_id HAVING ${leases} > 2`,
  "has another count of attempts than of leases": `
    SELECT id, attempt AS what FROM executions
    WHERE attempt <> (SELECT ${leases} FROM ledger WHERE execution_id = id)`,
  [letterMissing]: `
    SELECT e.id, count(d.id) AS what FROM executions e LEFT JOIN dead_letters d ON d.execution_id = e.id
    WHERE mode = 'async' AND session_id IS NULL AND status IN ('failed', 'timeout', 'oom')
    GROUP BY e.id HAVING count(d.id) <> 1`,
  "is a dead letter and should not be": `
    SELECT e.id, e.mode || ' ' || e.status AS what FROM dead_letters d JOIN executions e ON e.id = d.execution_id
    WHERE NOT (mode = 'async' AND session_id IS NULL AND status IN ('failed', 'timeout', 'oom'))`,
  "holds an idempotency key that another holds too": `
    SELECT min(id) AS id, idempotency_key AS what FROM executions WHERE idempotency_key IS NOT NULL
    GROUP BY idempotency_key HAVING count(*) > 1`,
  "ended with a result that is not stored": `
    SELECT id, status AS what FROM executions LEFT JOIN payloads ON execution_id = id
    WHERE result_hash IS NOT NULL AND stdout IS NULL`,
  "is counted otherwise than it ended": `
    SELECT label AS id, sum(n) - (SELECT count(*) FROM ledger WHERE became = label) AS what
    FROM counts WHERE name = 'executions' GROUP BY label
    HAVING sum(n) <> (SELECT count(*) FROM ledger WHERE became = label)`,
  "uses other than its rows say": miscounted,
  "is the length of a queue that is empty": `SELECT 'queue' AS id, queued AS what FROM queue_length WHERE queued <> 0
    UNION ALL SELECT name, queued FROM tenants WHERE queued <> 0`,
};

/**
 * Checks the books of a service that has come to rest: docs/faults.md says what must hold. The
 * ledger must have run since before the first submission.
 *
 * @param lettersRemoved Executions whose dead letter a client has removed.
 */
export async function checkLedger(
  db: Client,
  acknowledged: readonly Acknowledged[],
  lettersRemoved: ReadonlySet<string> = new Set(),
): Promise<Ledger> {
  const faults: string[] = [];
  for (const [fault, question] of Object.entries(questions)) {
    for (const row of (await db.execute(question)).rows) {
      if (fault === letterMissing && lettersRemoved.has(text(row, "id"))) continue;
      faults.push(`${text(row, "id")} ${fault}: ${text(row, "what")}`);
    }
  }
  const records = await readRecords(db);
  for (const expected of acknowledged) {
    const fault = faultOf(expected, records.get(expected.id));
    if (fault) faults.push(`${expected.id} ${fault}`);
  }
  const ended = new Map<string, number>();
  for (const record of records.values()) {
    ended.set(record.end, (ended.get(record.end) ?? 0) + 1);
  }
  const { rows } = await db.execute("SELECT count(*) AS n FROM dead_letters");
  return {
    ended,
    acknowledged: acknowledged.length,
    deadLetters: Number(rows[0]?.["n"]),
    retried: [...records.values()].filter(({ attempt }) => attempt > 1).length,
    faults,
  };
}

type Found = { end: string; attempt: number; stdout: string };

async function readRecords(db: Client): Promise<Map<string, Found>> {
  const { rows } = await db.execute(`
    SELECT id, attempt, status || coalesce('/' || json_extract(error, '$.type'), '') AS end,
      CAST(substr(stdout, 1, 1000) AS TEXT) AS stdout
    FROM executions JOIN payloads ON execution_id = id`);
  return new Map(
    rows.map((row) => {
      const attempt = Number(row["attempt"]);
      return [text(row, "id"), { end: text(row, "end"), attempt, stdout: text(row, "stdout") }];
    }),
  );
}

const text = (row: Row, column: string): string => `${(row[column] as string | number) ?? ""}`;

/** Faults of the machinery that a job may end by, where both of its attempts met one. */
const brokenTwice = ["failed/internal_error", "failed/docker_error", "failed/service_unavailable"];
/** An engine that hangs is told as this. */
const slowStart = "timeout/startup_timeout";

function faultOf({ ends, stdout }: Acknowledged, found: Found | undefined): string | undefined {
  if (!found) return "was acknowledged and is missing";
  const { end, attempt } = found;
  const isBroken = (brokenTwice.includes(end) && attempt === 2) || end === slowStart;
  if (!ends.includes(end) && !isBroken) {
    return `ended as ${end} at attempt ${attempt}, and should as ${ends.join(" or ")}`;
  }
  if (end === "succeeded" && stdout !== undefined && found.stdout !== stdout) {
    return `printed ${JSON.stringify(found.stdout)}, and should have ${JSON.stringify(stdout)}`;
  }
  return undefined;
}
