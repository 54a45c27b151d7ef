import { afterEach, beforeEach, expect, test } from "vitest";
import { openPlanner, type Planner } from "../../testing/query-plans.ts";
import { handleOf, newExecution } from "../../testing/temp-store.ts";
import { deadLetterStats } from "./dead-letters.ts";
import { submitExecution } from "./submit.ts";

let planner: Planner;
beforeEach(async () => {
  planner = await openPlanner();
});
afterEach(() => planner.close());

/** Ends a job of a tenant before its start. */
async function fail(tenant: string, type: "timeout" | "value_error", at: number): Promise<void> {
  const { db } = planner;
  const job = newExecution({ tenant });
  await submitExecution(db, job, 100);
  const error = { type, message: "", phase: "startup" } as const;
  await db.client.execute({
    sql: "update executions set status = ?, ended_at = ?, error = ? where id = ?",
    args: [type === "timeout" ? type : "failed", at, JSON.stringify(error), job.id],
  });
}

test("dead letters are counted for one tenant or for all together, in the order of an index", async () => {
  await fail("a", "timeout", 1000);
  for (const tenant of ["a", "b", "b"]) await fail(tenant, "value_error", 2000);
  const stats = (tenant: string) => deadLetterStats(handleOf(planner.db, tenant));
  const plans = await planner.plansOf(async () => {
    expect(await stats("b")).toEqual({ byType: new Map([["value_error", 2]]), oldest: 2000 });
    const all = { timeout: 1, value_error: 3 };
    expect(await stats("*")).toEqual({ byType: new Map(Object.entries(all)), oldest: 1000 });
  });
  expect(plans.filter((step) => step.includes("TEMP B-TREE"))).toEqual([]);
});
