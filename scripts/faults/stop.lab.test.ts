import { expect, test } from "vitest";
import { agentName, startFaultWorld } from "../testing/fault-world.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";

test("fault 13: SIGTERM to agent and API at once, under load: both end in order, nothing is lost or run twice", async () => {
  await using world = await startFaultWorld();
  const name = agentName("stopped");
  const agent = await world.startAgent(name, { AIRLOCK_MAX_WORKERS: "2" });
  const acknowledged = new Map<string, string>();
  const code = `import json, time; time.sleep(0.3); print(json.load(open("/input/data.json"))["mark"])`;
  let isStopping = false;
  const hasRoom = async () => {
    const { json } = await world.send("GET", "/health");
    return (json["queue_stats"] as { pending: number }).pending < 10;
  };
  const clients = Array.from({ length: 3 }, async (_, client) => {
    for (let n = 0; ; n++) {
      const mark = `${client} ${n}`;
      try {
        await waitUntil("the queue has room", hasRoom);
        acknowledged.set(await world.submit(code, { mark }), `${mark}\n`);
      } catch (error) {
        if (isStopping) return;
        throw error;
      }
    }
  });
  const done = "SELECT id, ended_at FROM executions WHERE status = 'succeeded'";
  await waitUntil(
    "three jobs are done",
    async () => (await world.db.execute(done)).rows.length >= 3,
  );
  isStopping = true;
  agent.process.kill("SIGTERM");
  world.api().child.kill("SIGTERM");
  await Promise.all(clients);
  expect(await Promise.all([agent.exit, world.api().exited])).toEqual([0, 0]);
  const before = (await world.db.execute(done)).rows;
  expect(before.length).toBeGreaterThanOrEqual(3);

  await world.startApi();
  await world.startAgent(name, { AIRLOCK_MAX_WORKERS: "4" });
  for (const id of acknowledged.keys()) await world.ended(id);
  const books = [...acknowledged].map(([id, stdout]) => ({ id, ends: ["succeeded"], stdout }));
  expect((await world.ledger(books)).faults).toEqual([]);
  const ends = new Map((await world.db.execute(done)).rows.map((row) => [row["id"], row]));
  for (const row of before) expect(ends.get(row["id"])).toEqual(row);
});
