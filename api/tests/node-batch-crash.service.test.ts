import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@libsql/client";
import { beforeEach, expect, test } from "vitest";
import type { SubmittedBatch } from "../../shared/wire/client/batch.ts";
import { startNodeIn } from "../testing/start-node.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

const vars = {
  AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  AIRLOCK_MAX_QUEUE_SIZE: "100000",
};
const jobs = Array.from({ length: 1000 }, (_, n) => ({ code: `print(${n})` }));

let folder: string;
beforeEach(() => {
  folder = tempFolder();
});

/** Sends a batch, and kills the service after `afterMs` or after the answer. Returns the answer, if any. */
async function submitAndKill(key: string, afterMs?: number): Promise<SubmittedBatch | undefined> {
  const api = await startNodeIn(folder, { ...vars, AIRLOCK_PORT: "0" });
  const answer = fetch(`${api.url}/execute/batch`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": key },
    body: JSON.stringify({ jobs, atomic: true }),
  })
    .then(async (response) => (await response.json()) as SubmittedBatch)
    .catch(() => undefined);
  await (afterMs === undefined ? answer : sleep(afterMs));
  await api.close();
  return answer;
}

async function storedJobs(): Promise<Map<string, number>> {
  const client = createClient({ url: `file:${folder}/airlock.db` });
  const { rows } = await client.execute(
    "SELECT batch_id, count(*), count(code) FROM executions LEFT JOIN payloads ON execution_id = id GROUP BY 1",
  );
  client.close();
  for (const row of rows) expect(row[1], "every job has its payload").toBe(row[2]);
  return new Map(rows.map((row) => [row[0] as string, Number(row[1])]));
}

test("after kill -9 during atomic batches each is stored whole or not at all, and whole if it was answered", async () => {
  const answered: string[] = [];
  for (const afterMs of [0, 20, 40, 60, 80, 120, undefined]) {
    const answer = await submitAndKill(`after ${afterMs}`, afterMs);
    if (answer) answered.push(answer.batch_id);
    const stored = await storedJobs();
    expect(new Set([jobs.length, ...stored.values()])).toEqual(new Set([jobs.length]));
    expect([...stored.keys()]).toEqual(expect.arrayContaining(answered));
  }
  expect(answered.length).toBeGreaterThan(0);
});
