import { describe, expect, test } from "vitest";
import { loadConfig } from "../../../shared/config/config.ts";
import type { BreakerState } from "../../../shared/wire/health.ts";
import { agent as agentReport, breaker as closed } from "../../testing/placement-world.ts";
import { type AgentReport, health, isLive, poolStats, whyUnavailable } from "./capacity.ts";

const config = loadConfig({ liveness_s: 30, lease_ttl_s: 180 }, {});
const now = 1_000_000;

function agent(state: BreakerState, silentMs = 0): AgentReport {
  const breaker = { ...closed, state };
  const engine = { available: true, version: null, runtimes: [] };
  return agentReport({ slots: 4, engine, breaker, lastSeenAt: now - silentMs });
}

test("an agent is live for liveness_s after it last contacted the API", () => {
  expect(isLive(agent("closed", 30_000), config, now)).toBe(true);
  expect(isLive(agent("closed", 30_001), config, now)).toBe(false);
});

const none = new Map<string, number>();
const idle = { pending: 0, running: 0, runningByAgent: none, sessionsByAgent: none };

test("an agent that holds sessions is shown with them", () => {
  const one = { ...agent("closed"), maxSessions: 8 };
  const queue = { ...idle, sessionsByAgent: new Map([[one.id, 3]]) };
  const [shown, other] = poolStats([one, agent("closed")], { ...queue }, config, now).agents;
  expect(shown!.sessions).toEqual({ held: 3, max: 8 });
  expect(other).not.toHaveProperty("sessions");
});

test.each([
  [[], false],
  [["runc"], false],
  [["runc", "runsc"], true],
  [["runsc-kvm"], true],
])("gVisor is available with the runtimes %o: %s", (runtimes, expected) => {
  const engine = { available: true, version: null, runtimes };
  const queue = idle;
  const record = health([{ ...agent("closed"), engine }], queue, config, "1.0.0");
  expect(record.gvisor_available).toBe(expected);
});

test.each<[string, AgentReport, number]>([
  ["idle", agent("closed"), 0],
  ["idle", agent("closed"), 3],
  ["working", agent("closed"), 4],
  ["unwell", agent("open"), 0],
  ["draining", { ...agent("open"), drainingAt: now }, 0],
  ["silent", { ...agent("open", 30_001), drainingAt: now }, 4],
])("an agent is shown as %s", (expected, one, running) => {
  const queue = { ...idle, running, runningByAgent: new Map([[one.id, running]]) };
  expect(poolStats([one], queue, config, now).agents[0]).toMatchObject({
    state: expected,
    running,
  });
});

describe("an execution is kept out", () => {
  const gone = 60_000;
  test.each<[string, AgentReport[], sync: boolean, async: boolean]>([
    ["no agent is known", [], true, false],
    ["one is there", [agent("closed")], false, false],
    ["its breaker is half open", [agent("half_open")], false, false],
    ["its breaker is open", [agent("open")], true, true],
    ["one of two has a closed breaker", [agent("open"), agent("closed")], false, false],
    ["the only one is gone", [agent("closed", gone)], true, false],
    ["the only one is gone with its breaker open", [agent("open", gone)], true, true],
    [
      "the closed one is gone, the open one is there",
      [agent("closed", gone), agent("open")],
      true,
      true,
    ],
    [
      "the open one is gone, the closed one is there",
      [agent("open", gone), agent("closed")],
      false,
      false,
    ],
  ])("%s", (_when, known, sync, async) => {
    expect(whyUnavailable("sync", known, config, now) !== undefined).toBe(sync);
    expect(whyUnavailable("async", known, config, now) !== undefined).toBe(async);
  });
});
