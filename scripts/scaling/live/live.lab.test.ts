import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { startNode } from "./node-engine.ts";
import { type LiveCosts, liveOperations, measureLive, type StartEngine } from "./operations.ts";
import { startWorker } from "./worker-engine.ts";

const minuteMs = 100;

function expectKnown(costs: LiveCosts): void {
  expect(Object.keys(costs)).toEqual(Object.keys(liveOperations));
  const { unwatched, watched, webhook } = costs;
  expect(watched.calls).toBeGreaterThan(unwatched.calls);
  expect([unwatched.writes, watched.writes]).toEqual([1, 1]);
  // Its deliveries are made, claimed, and recorded.
  expect(webhook.writes).toBe(3);
}

test.each(["file", "server"] as const)(
  "events and webhooks are counted on Node over a %s",
  async (on) => {
    const start: StartEngine = (changes) => startNode(on, changes);
    const costs = await measureLive(start, minuteMs);
    expectKnown(costs);
    // Clients of one process share their reads.
    expect(costs.watchedByTwo.calls).toBe(costs.watched.calls);
  },
);

test("on Workers, requests to Durable Objects and alarms are counted too", async () => {
  const costs = await measureLive(startWorker, minuteMs);
  expectKnown(costs);
  const { unwatched, watched, webhook, webhookMinute } = costs;
  expect([unwatched.objectRequests, watched.objectRequests > 0]).toEqual([0, true]);
  expect([webhook.alarms > 0, webhookMinute.alarms]).toEqual([true, 1]);
});

test("docs/scaling.md has each of these operations", () => {
  const page = readFileSync("docs/scaling.md", "utf8");
  for (const what of Object.values(liveOperations)) expect(page).toContain(`\n| ${what} |`);
});
