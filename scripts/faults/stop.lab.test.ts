import { expect, test } from "vitest";
import { startTestService } from "../testing/test-service.ts";
import { shortLeases } from "./short-leases.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";

test("fault 13: SIGTERM to agent and API at once, under load: both end in order, nothing is lost or run twice", async () => {
  await using service = await startTestService({ api: shortLeases });
  const agent = await service.startAgent("stopped", { AIRLOCK_MAX_WORKERS: "2" });
  const acknowledged = new Map<string, string>();
  const code = `import json, time; time.sleep(0.3); print(json.load(open("/input/data.json"))["mark"])`;
  let isStopping = false;
  const hasRoom = async () => {
    const { json } = await service.send("GET", "/health");
    return (json["queue_stats"] as { pending: number }).pending < 10;
  };
  const clients = Array.from({ length: 3 }, async (_, client) => {
    for (let n = 0; ; n++) {
      const mark = `${client} ${n}`;
      try {
        await waitUntil("the queue has room", hasRoom);
        acknowledged.set(await service.submit(code, { mark }), `${mark}\n`);
      } catch (error) {
        if (isStopping) return;
        throw error;
      }
    }
  });
  const done = "SELECT id, ended_at FROM executions WHERE status = 'succeeded'";
  await waitUntil(
    "three jobs are done",
    async () => (await service.db.execute(done)).rows.length >= 3,
  );
  isStopping = true;
  agent.process.kill("SIGTERM");
  service.api().child.kill("SIGTERM");
  await Promise.all(clients);
  expect(await Promise.all([agent.exit, service.api().exited])).toEqual([0, 0]);
  const before = (await service.db.execute(done)).rows;
  expect(before.length).toBeGreaterThanOrEqual(3);

  await service.startApi();
  await service.startAgent("stopped", { AIRLOCK_MAX_WORKERS: "4" });
  for (const id of acknowledged.keys()) await service.ended(id);
  const books = [...acknowledged].map(([id, stdout]) => ({ id, ends: ["succeeded"], stdout }));
  expect((await service.ledger(books)).faults).toEqual([]);
  const ends = new Map((await service.db.execute(done)).rows.map((row) => [row["id"], row]));
  for (const row of before) expect(ends.get(row["id"])).toEqual(row);
});
