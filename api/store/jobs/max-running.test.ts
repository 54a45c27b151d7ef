import { describe, expect, test, vi } from "vitest";
import { order, submit } from "../../testing/claim-order.ts";
import { by, noLimits } from "../../testing/temp-store.ts";
import { store, useStore } from "../../testing/use-store.ts";
import { setLimits } from "../tenants.ts";
import { advance } from "./advance.ts";

useStore();

describe("a tenant that runs max_running jobs", () => {
  const limit = (tenant: string, most: number) =>
    setLimits(store.db, tenant, { ...noLimits, max_running: most }, by(0));
  const end = async (tenant: string) => {
    const { rows } = await store.db.client.execute({
      sql: "select lease_id from executions where status = 'running' and tenant = ? limit 1",
      args: [tenant],
    });
    const leaseId = rows[0]!["lease_id"] as string;
    await advance(
      store.db,
      { leaseId },
      { kind: "complete", leaseId, status: "succeeded", error: null, exitCode: 0 },
      101,
    );
  };

  test("gets no more, and others pass it", async () => {
    await limit("a", 2);
    await submit("aaaaaab");
    expect(await order(4)).toBe("aba");
    expect(await order(4)).toBe("");
    await submit("bb");
    expect(await order(4)).toBe("bb");
    await end("a");
    expect(await order(4)).toBe("a");
    await limit("a", 3);
    expect(await order(4)).toBe("a");
  });

  test("costs a claim no write while only its jobs wait", async () => {
    await limit("a", 1);
    await submit("aa");
    expect(await order(1)).toBe("a");
    const write = vi.spyOn(store.db.client, "batch");
    expect(await order(1)).toBe("");
    expect(write).not.toHaveBeenCalled();
    await submit("b");
    expect(await order(1)).toBe("b");
    expect(write).toHaveBeenCalled();
  });

  test("takes the room that it has, in any number of claims, and of all job types together", async () => {
    await limit("a", 3);
    await submit("aAaAaA");
    expect((await order(1)) + (await order(5))).toHaveLength(3);
    expect(await order(5)).toBe("");
  });

  test("does not hold the front, so that a newcomer does not pass the others", async () => {
    await limit("a", 1);
    await submit("aaaccccc");
    expect(await order(1)).toBe("a");
    expect(await order(4)).toBe("cccc");
    await submit("bb");
    expect(await order(3)).toBe("cbb");
  });

  test("keeps its place for when it has room", async () => {
    await limit("a", 1);
    await submit("aabbbb");
    expect((await order(3)) + (await order(1))).toBe("abbb");
    await end("a");
    expect(await order(2)).toBe("ab");
  });
});
