import { open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { openDatabase } from "../../api/platform/sqlite.node.ts";
import { Config } from "../../shared/config/config.ts";

const BATCH = 5000;
/** Yesterday: the service's sweep would remove what is older than its retention while it is measured. */
const FROM_MS = Date.now() - 24 * 3600_000;

/** Makes a database with as many finished executions, one in twenty of them failed, in a data folder. */
export async function fillHistory(folder: string, count: number): Promise<void> {
  const client = await openDatabase(Config.parse({ data_dir: folder }));
  await client.execute("PRAGMA synchronous = OFF");
  for (let from = 0; from < count; from += BATCH) {
    const range = [from, Math.min(from + BATCH, count)];
    await client.batch(
      [executions, payloads, deadLetters].map((sql) => ({ sql, args: range })),
      "write",
    );
  }
  client.close();
  await bringToDisk(folder);
}

/** What the filling left to the kernel would else be written at the service's first checkpoint. */
async function bringToDisk(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    // SQLite removes its log when the last connection closes, which may happen meanwhile.
    const file = await open(join(folder, name)).catch(() => undefined);
    await file?.sync();
    await file?.close();
  }
}

const numbers = "WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)";
const id = "printf('00000000-0000-7000-8000-%012d', i)";
const at = `${FROM_MS} + i`;
const hash = "lower(hex(randomblob(32)))";
const isFailed = "i % 20 = 0";
const error = `'{"type":"value_error","message":"ValueError: x","phase":"execution"}'`;
const timing = `'{"startup_ms":1,"dep_install_ms":0,"execution_ms":2,"total_ms":3,"phase_at_exit":"completed"}'`;

const executions = `INSERT INTO executions (id, mode, status, job_type, timeout_s, startup_timeout_s,
    requirements, attempt, lease_id, agent_id, available_at, created_at, started_at, code_started_at,
    ended_at, exit_code, error, timing, max_rss_mb, cpu_time_ms, wall_time_ms, result_hash, code_hash,
    input_hash, code_bytes, input_bytes, submission_hash, correlation_id, client_ip, turn, rank)
  ${numbers} SELECT ${id}, 'async', iif(${isFailed}, 'failed', 'succeeded'), 'default', 30, 60,
    '[]', 1, replace(${id}, '-7000-', '-4000-'), 'agent', ${at}, ${at}, ${at}, ${at},
    ${at}, ${isFailed}, iif(${isFailed}, ${error}, NULL), ${timing}, 9.5, 3, 4, ${hash}, ${hash},
    ${hash}, 14, 2, ${hash}, ${id}, '127.0.0.1', i, i FROM n`;

const payloads = `INSERT INTO payloads (execution_id, code, input, stdout, stderr)
  ${numbers} SELECT ${id}, CAST('print("hello")' AS BLOB), CAST('{}' AS BLOB),
    CAST('hello' || char(10) AS BLOB), x'' FROM n`;

const deadLetters = `INSERT INTO dead_letters (execution_id, error_type, created_at)
  ${numbers} SELECT ${id}, 'value_error', ${at} FROM n WHERE ${isFailed}`;
