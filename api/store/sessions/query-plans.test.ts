import { afterAll, expect, test } from "vitest";
import { openPlanner } from "../../testing/query-plans.ts";
import { newSession } from "../../testing/session-store.ts";
import { handleOf, newExecution, offers } from "../../testing/temp-store.ts";
import { readChanges } from "../changes.ts";
import { listExecutions } from "../jobs/list.ts";
import { submitExecution } from "../jobs/submit.ts";
import { advanceSession } from "./advance-session.ts";
import { claimCalls } from "./claim-calls.ts";
import { createSession } from "./create-session.ts";
import { forgetSessions } from "./forget-sessions.ts";
import { claimSessions, dueSessions, renewSessions, sessionsOf } from "./session-lease.ts";
import { busySessions, listSessions } from "./sessions.ts";

const now = 100;
const terms = { agentId: "agent", expiresAt: 200, now };
const lease = "00000000-0000-4000-8000-000000000000";

const planner = await openPlanner();
const { db } = planner;
afterAll(() => planner.close());

const session = newSession({ id: "s", idempotencyKey: "k" });

test.each<[string, string[], () => Promise<unknown>]>([
  [
    "a submission of a call",
    [],
    () => submitExecution(db, newExecution({ sessionId: "s", context: "default" }), 10),
  ],
  ["a claim of calls", [], () => claimCalls(db, terms)],
  [
    "a claim of sessions",
    ["SCAN waiting USING COVERING INDEX sessions_queue"],
    () => claimSessions(db, terms, 1, offers),
  ],
  ["a renewal of sessions", [], () => renewSessions(db, terms, [lease])],
  ["a new session", [], () => createSession(db, session, 10)],
  ["the end of a session", [], () => advanceSession(db, { id: "s" }, { kind: "delete" }, now)],
  ["due sessions", ["SCAN sessions USING INDEX sessions_open"], () => dueSessions(db, now)],
  ["old sessions", [], () => forgetSessions(db, now, 10)],
  ["the sessions of an agent", [], () => sessionsOf(db, "agent")],
  ["a list of sessions", [], () => listSessions(handleOf(db), {}, 10, 0)],
  ["a list of open sessions", [], () => listSessions(handleOf(db), { status: "ready" }, 10, 0)],
  ["which sessions are busy", [], () => busySessions(handleOf(db), ["s"])],
  ["the calls of a session", [], () => listExecutions(handleOf(db), { sessionId: "s" }, 10, 0)],
  [
    "news for agents that hold sessions",
    ["SCAN executions USING INDEX executions_rank", "SCAN sessions USING INDEX sessions_queue"],
    () =>
      readChanges(
        db,
        { agents: ["a"], executions: [], outputs: [], builds: [], sessions: ["s"] },
        1,
      ),
  ],
])("%s scans no history", async (_what, expected, run) => {
  const plans = await planner.plansOf(run);
  const isScan = (step: string) => /^SCAN (executions|sessions|waiting|c|r|held)\b/.test(step);
  expect(plans.length).toBeGreaterThan(0);
  expect(plans.filter(isScan)).toEqual(expected);
});
