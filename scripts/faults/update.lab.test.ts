import { expect, test } from "vitest";
import type { AgentProcess } from "../../agent/testing/agent-process.ts";
import { startTestService } from "../testing/test-service.ts";
import { shortLeases } from "./short-leases.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";

test("an agent that is replaced twice under load finishes its jobs, and the next one runs new jobs, each once", async () => {
  await using service = await startTestService({ api: shortLeases });
  await service.db.batch(
    [
      "CREATE TABLE begun (execution_id TEXT)",
      `CREATE TRIGGER noted AFTER UPDATE ON executions
        WHEN NEW.code_started_at IS NOT NULL AND OLD.code_started_at IS NULL
        BEGIN INSERT INTO begun VALUES (NEW.id); END`,
    ],
    "write",
  );
  // As long as the longest job may take on a busy machine.
  const start = () =>
    service.startAgent("updated", { AIRLOCK_MAX_WORKERS: "2", AIRLOCK_DRAIN_GRACE_S: "300" });
  const acknowledged = new Map<string, string>();
  const code = `import json, time; time.sleep(0.3); print(json.load(open("/input/data.json"))["mark"])`;
  const over = new AbortController();
  const clients = Array.from({ length: 5 }, async (_, client) => {
    for (let n = 0; !over.signal.aborted; n++) {
      const mark = `${client} ${n}`;
      const id = await service.submit(code, { mark });
      acknowledged.set(id, `${mark}\n`);
      await service.ended(id);
    }
  });

  const count = async (where: string): Promise<number> => {
    const { rows } = await service.db.execute(
      `SELECT count(*) AS n FROM executions WHERE ${where}`,
    );
    return Number(rows[0]?.["n"]);
  };
  async function untilBusy(): Promise<void> {
    const before = await count("status = 'succeeded'");
    const running = "status = 'running' AND code_started_at IS NOT NULL";
    await waitUntil(
      "four more jobs end",
      async () => (await count("status = 'succeeded'")) >= before + 4,
    );
    await waitUntil("code runs", async () => (await count(running)) > 0);
  }
  async function end(agent: AgentProcess): Promise<void> {
    agent.process.kill("SIGTERM");
    expect(await agent.exit).toBe(0);
  }

  const first = await start();
  await untilBusy();
  await end(first);
  expect(await count("status = 'running'")).toBe(0);
  const second = await start();
  await untilBusy();
  // This time the next one is there before.
  const third = await start();
  await end(second);
  await untilBusy();
  over.abort();
  await Promise.all(clients);
  await end(third);

  const books = [...acknowledged].map(([id, stdout]) => ({ id, ends: ["succeeded"], stdout }));
  expect(books.length).toBeGreaterThanOrEqual(12);
  const { ended, deadLetters, faults } = await service.ledger(books);
  expect({ ended, deadLetters, faults }).toEqual({
    ended: new Map([["succeeded", books.length]]),
    deadLetters: 0,
    faults: [],
  });
  // One that was leased and had not begun may have gone back to the queue.
  const { rows } = await service.db.execute("SELECT execution_id FROM begun ORDER BY 1");
  expect(rows.map((row) => row["execution_id"])).toEqual([...acknowledged.keys()].sort());
});
