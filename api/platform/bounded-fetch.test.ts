import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { createClient } from "@libsql/client/web";
import { expect, test } from "vitest";
import { isStoreOutage } from "../store/outage.ts";
import { boundedFetch } from "./bounded-fetch.ts";

test("a database server that never answers is an outage after the timeout", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client = createClient({ url: `http://127.0.0.1:${port}`, fetch: boundedFetch(50) });
  const outcomes = await Promise.allSettled([
    client.execute("SELECT 1"),
    client.batch(["SELECT 1", "SELECT 2"], "write"),
  ]);
  client.close();
  server.close();
  for (const outcome of outcomes) {
    expect(outcome.status === "rejected" && isStoreOutage(outcome.reason)).toBe(true);
  }
});
