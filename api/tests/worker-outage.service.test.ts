import { expect, test } from "vitest";
import { Api, problemOf } from "../testing/contract/api.ts";
import { servers } from "../testing/contract/servers.ts";
import { startWorkerd } from "../testing/start-workerd.ts";

test("while the worker's database is gone, requests are 503 with Retry-After", async () => {
  const worker = await startWorkerd(servers.open, true);
  try {
    const api = new Api(worker.url);
    await api.submit();
    await worker.database.close();
    const replies = [
      await api.post("/execute/async", { code: "print(1)" }),
      await api.get("/executions"),
    ];
    for (const reply of replies) {
      expect(reply.status).toBe(503);
      expect(Number(reply.headers.get("Retry-After"))).toBeGreaterThan(0);
      expect(problemOf(reply).error).toMatchObject({ type: "service_unavailable" });
    }
  } finally {
    await worker.close();
  }
});
