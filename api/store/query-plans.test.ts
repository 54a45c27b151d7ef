import { afterAll, expect, test } from "vitest";
import { claimCalls, claimNext, jobTypesUsedSince } from "../agents/claim.ts";
import { readTodo } from "../agents/poll.ts";
import {
  findByUploadKey,
  findFiles,
  keepNeeded,
  listFiles,
  recordFile,
  removeExpiredFiles,
} from "../files/sql.ts";
import { cancelMembers, findBatch, forgetBatches, readStandings } from "../jobs/batch-sql.ts";
import {
  deadLetterStats,
  listDeadLetters,
  listExecutions,
  pruneDeadLetters,
} from "../jobs/executions.ts";
import {
  advance,
  expireLeases,
  findLeased,
  readAttempts,
  renewLeases,
  undeliveredLeases,
} from "../jobs/lease.ts";
import {
  findArtifact,
  findOutput,
  outputEnds,
  readOutput,
  recordArtifact,
  recordOutput,
} from "../jobs/output.ts";
import {
  filesOf,
  findByLease,
  findExecution,
  findInputFile,
  queuePosition,
  readQueueStats,
} from "../jobs/sql.ts";
import { readEnvironments } from "../jobs/read.ts";
import { submitExecution } from "../jobs/submit.ts";
import { endOverdue } from "../jobs/wait.ts";
import { readCounts } from "../monitoring/metrics.ts";
import { readChanges } from "../platform/notifier.ts";
import { claimSessions, dueSessions, renewSessions, sessionsOf } from "../sessions/lease.ts";
import {
  advanceSession,
  busySessions,
  createSession,
  forgetSessions,
  listSessions,
} from "../sessions/sql.ts";
import { registry } from "./statement.ts";
import { ScriptedAgent } from "../testing/scripted-agent.ts";
import { newSession } from "../testing/session-store.ts";
import { openPlanner } from "../testing/statements.ts";
import { handleOf, jobType, newExecution, offers, testDeps } from "../testing/temp-store.ts";
import {
  claimDue,
  eventsAfter,
  eventsOf,
  findDelivery,
  forgetDeliveries,
  lastEvent,
  listDeliveries,
  newEvents,
  nextDue,
} from "../webhooks/sql.ts";
import {
  dueRemovals,
  endedBefore,
  forgetTombstones,
  removeBuilds,
  removeExecutions,
} from "./retention.ts";

const now = 100;
const terms = { agentId: "agent", expiresAt: 200, now };
const lease = "00000000-0000-4000-8000-000000000000";

const id = newExecution().id;
const artifact = {
  executionId: id,
  leaseId: lease,
  name: "a",
  sizeBytes: 1,
  sha256: "",
  contentType: "",
};

const planner = await openPlanner();
const { db } = planner;
await submitExecution(db, newExecution({ id, idempotencyKey: "key" }), 10);
afterAll(() => planner.close());

/** Returns how SQLite finds the executions for the statements of `run`. */
async function searches(run: () => Promise<unknown>): Promise<string[]> {
  return (await planner.plansOf(run))
    .filter((step) => / executions | dead_letters .*_(error_type|created_at|tenant) ?/.test(step))
    .map((step) => step.replace(/ (executions|dead_letters) USING (COVERING )?(INDEX )?/, " "));
}

const list = (filter: Parameters<typeof listExecutions>[1], tenant?: string) =>
  listExecutions(handleOf(db, tenant), filter, 10, 0);

const byKey = "SEARCH executions_idempotency_key (tenant=? AND idempotency_key=?)";
const byId = "SEARCH executions_id_unique (id=?)";
const byRow = "SEARCH INTEGER PRIMARY KEY (rowid=?)";
const byHolder = "SEARCH executions_holder (agent_id=? AND session_id=?)";
const byLease = "SEARCH executions_lease (lease_id=?)";
const byExpiry = "SEARCH executions_expiry (lease_expires_at<?)";
const byTurn = "SEARCH executions_turn (tenant=?)";
const byPosition = "SEARCH executions_position (tenant=? AND rank<?)";
const isLast = "SEARCH executions_position (tenant=? AND rank>?)";
const byStatus = "SEARCH executions_status (tenant=? AND status=?)";
const byAge = "SEARCH executions_id_unique (id<?)";
const byJobType = "SEARCH executions_job_type (tenant=? AND job_type=?)";
const byBoth = "SEARCH executions_job_type_status (tenant=? AND job_type=? AND status=?)";
const byBatch = "SEARCH executions_batch (batch_id=?)";
const byErrorType = "SEARCH dead_letters_error_type (tenant=? AND error_type=?)";

test.each<[string, string[], () => Promise<unknown>]>([
  [
    "a submission",
    [byTurn, byKey, isLast, byPosition, byKey],
    () => submitExecution(db, newExecution({ idempotencyKey: "other" }), 10),
  ],
  [
    "a queue position",
    [byId, isLast, byPosition],
    async () => queuePosition(db, (await findExecution(db, id))!),
  ],
  [
    "a claim",
    ["SEARCH executions_rank (job_type=?)", byHolder, byRow, byRow, byHolder],
    () =>
      claimNext(db, terms, { slots: 1, gpus: 0 }, [...offers, { ...offers[0]!, jobType: "other" }]),
  ],
  [
    "leases never delivered",
    [byHolder, byLease],
    () => undeliveredLeases(db, terms, [lease], 1, [jobType, "other"]),
  ],
  ["a renewal", [byLease], () => renewLeases(db, terms, [lease])],
  ["a lookup by lease", [byLease], () => findByLease(db, lease)],
  ["a lookup by lease with its agent", [byLease], () => findLeased(db, { leaseId: lease })],
  ["the end of leases", [byExpiry], () => expireLeases(db, now)],
  ["the attempts of executions", [byId], () => readAttempts(db, { ids: JSON.stringify([id]) })],
  ["a cancel", [byId, byId], () => advance(db, { id }, { kind: "cancel" }, now)],
  ["an upload", [byLease, byLease], () => recordArtifact(db, artifact, 10, now)],
  ["a download", [byId], () => findArtifact(db, { executionId: id, name: "a" })],
  ["the queue's numbers", ["SCAN executions_holder"], () => readQueueStats(db)],
  ["a list by job type", [byJobType], () => list({ jobType: "default" })],
  ["a list", ["SEARCH executions_tenant (tenant=?)"], () => list({})],
  ["a list of all tenants' failures", [byRow, byStatus], () => list({ statuses: ["failed"] }, "*")],
  ["the last use of job types", [byJobType], () => jobTypesUsedSince(db, ["default"], 1)],
  ["a list of what waits", [byStatus], () => list({ statuses: ["queued"] })],
  ["the counts of the metrics", ["SEARCH executions_oldest"], () => readCounts(db)],
  ["what ended long ago", [byAge], () => endedBefore(db, now, { rows: 1, bytes: 1 })],
  ["a removal", [byId, byId, byId], () => removeExecutions(db, ["none"], now)],
  ["a list of what ended", [byStatus], () => list({ statuses: ["failed"] })],
  [
    "a list of what ended in one of two ways",
    [byRow, byStatus, byStatus],
    () => list({ statuses: ["failed", "oom"] }),
  ],
  [
    "a list of calls that read or write files",
    ["SEARCH executions_files (tenant=?)"],
    () => list({ kind: "files", jobType: "default" }),
  ],
  [
    "a list by error",
    [byRow, byStatus, byStatus, byStatus, byStatus],
    () => list({ statuses: [], error: "text" }),
  ],
  [
    "a list of what runs",
    [byRow, "SCAN executions_holder"],
    () => list({ statuses: ["running"], jobType: "default" }),
  ],
  [
    "a list of what ended, by job type",
    [byBoth],
    () => list({ statuses: ["failed"], jobType: "default" }),
  ],
  [
    "a list by parent",
    ["SEARCH executions_parent (parent_execution_id=?)"],
    () => list({ parentId: id, statuses: ["failed"] }),
  ],
  ["a list of a batch", [byBatch], () => list({ batchId: "b", statuses: ["failed", "oom"] })],
  ["the counts of a batch", [byBatch], () => findBatch(handleOf(db), "b")],
  ["the cancel of a batch", [byRow, byBatch, byBatch], () => cancelMembers(handleOf(db), "b", now)],
  ["a list by metadata", [byRow], () => list({ metadata: [["a", "b"]] })],
  [
    "the page after a cursor",
    ["SEARCH executions_tenant (tenant=? AND seq<?)"],
    () => list({ before: id }),
  ],
  [
    "a list by time",
    ["SEARCH executions_tenant (tenant=? AND seq>? AND seq<?)"],
    () => list({ createdAfter: 1, createdBefore: 2 }),
  ],
  [
    "jobs that waited too long",
    ["SEARCH executions_start_by (start_by>? AND start_by<?)"],
    () => endOverdue(db, now),
  ],
  [
    "a list of dead letters of a type",
    [byErrorType, byId],
    () => listDeadLetters(handleOf(db), { type: "oom" }, 10, 0),
  ],
  [
    "the numbers of dead letters",
    ["SEARCH dead_letters_error_type (tenant=?)", "SEARCH dead_letters_tenant (tenant=?)"],
    () => deadLetterStats(handleOf(db)),
  ],
  [
    "the end of dead letters",
    ["SEARCH dead_letters_created_at (created_at<?)"],
    () => pruneDeadLetters(db, now, 10),
  ],
])("%s uses its index", async (_what, expected, run) => {
  expect(await searches(run)).toEqual(expected);
});

/** A search by the tenant alone, except in an index that has the order of what is asked for. */
const ofAll = /(?<!executions_(?:tenant|files|position|turn)|dead_letters_tenant) \(tenant=\?\)$/;

/** Each filter of a list, alone. */
const filters: Parameters<typeof listExecutions>[1][] = [
  { statuses: ["queued"] },
  { statuses: ["running"] },
  { statuses: ["queued", "failed"] },
  { error: "text" },
  { jobType: "default" },
  { parentId: id },
  { batchId: "b" },
  { sessionId: "s" },
  { kind: "files" },
  { metadata: [["a", "b"]] },
  { createdAfter: 1, createdBefore: 2 },
  { before: id },
];

test.each(["default", "*"])(
  "a list with two filters of any kind reads no history and does not sort, tenant %s",
  async (tenant) => {
    const faults: string[] = [];
    for (const [n, one] of filters.entries())
      for (const other of filters.slice(n)) {
        const filter = { ...one, ...other };
        const plan = await planner.plansOf(() => list(filter, tenant));
        const isFault = (step: string) =>
          ofAll.test(step) ||
          /SCAN executions (?!.*executions_holder)/.test(step) ||
          // The few that have a pair are sorted beside another narrow filter, and if they are of all tenants.
          (!filter.metadata && step.includes("ORDER BY"));
        faults.push(...plan.filter(isFault).map((step) => `${JSON.stringify(filter)} ${step}`));
      }
    expect(faults).toEqual([]);
  },
);

test("a list by time asks for the ids since then before it reads all jobs of the minute before", async () => {
  const near = "SEARCH near USING COVERING INDEX executions_id_unique (id>?)";
  expect(
    (await planner.plansOf(() => list({ createdAfter: 1 }))).filter((step) => step === near),
  ).toHaveLength(2);
});

test("no statement reads all jobs or dead letters of a tenant", async () => {
  await import("../app.ts");
  const faults: string[] = [];
  for (const { text } of registry) {
    const plan = await planner.explain({
      sql: text,
      args: text.match(/\?/g)?.map(() => null) ?? [],
    });
    const isTheirs = (step: string) => /(executions|dead_letters) .*USING (?!COVERING)/.test(step);
    if (plan.some((step) => isTheirs(step) && ofAll.test(step))) faults.push(text);
  }
  expect(faults).toEqual([]);
});

const anyDelivery = { status: undefined, endpoint: undefined, jobId: undefined, before: undefined };
const deliveries = (filter: Partial<Parameters<typeof listDeliveries>[1]> = {}) =>
  listDeliveries(handleOf(db), { ...anyDelivery, ...filter }, 10);
const part = { stream: "stdout", offset: 0, data: new Uint8Array(1) } as const;
const attempt = { executionId: id, attempt: 1 };
const file = {
  id: "f",
  name: "a",
  sizeBytes: 1,
  sha256: "",
  contentType: "",
  createdAt: 1,
  expiresAt: 2,
  uploadKey: "k",
};
const claimTerms = { now, until: 200, most: 10, each: 5, busy: new Map(), busyTenants: new Map() };

/** Each with the scans of whole tables or indexes that it may make: a LIMIT ends them early, or the table is small. */
test.each<[string, string[], () => Promise<unknown>]>([
  ["a list of deliveries", [], () => deliveries()],
  ["a list of deliveries of an endpoint", [], () => deliveries({ endpoint: "e" })],
  ["a list of deliveries by status", [], () => deliveries({ status: "failed" })],
  ["a list of deliveries of a job", [], () => deliveries({ jobId: id })],
  ["the time of the next call", [], () => nextDue(db, [])],
  ["a claim of deliveries", [], () => claimDue(db, claimTerms)],
  ["a claimed delivery's event", [], () => eventsOf(db, [{ eventSeq: 1 } as never])],
  ["the events of a tenant", [], () => eventsAfter(handleOf(db), { after: 0, most: 10 })],
  ["the newest event of a tenant", [], () => lastEvent(handleOf(db))],
  [
    "new events",
    ["SCAN webhook_events USING INDEX webhook_events_new"],
    () => newEvents(db, { most: 10 }),
  ],
  ["old deliveries", [], () => forgetDeliveries(db, now, 10)],
  ["a delivery", [], () => findDelivery(db, { id: 1 })],
  ["an uploaded file", [], () => recordFile(db, file)],
  ["a file by its key", [], () => findByUploadKey(handleOf(db), { uploadKey: "k", now })],
  ["files by id", [], () => findFiles(db, ["f"], now)],
  ["a list of files", [], () => listFiles(handleOf(db), "g", now, 10, 0)],
  ["expired files", [], () => removeExpiredFiles(db, now, 10, now)],
  ["bytes that are needed", [], () => keepNeeded(db, "f", now)],
  ["files of executions", [], () => filesOf(db, [{ id, inputs: "mount" }])],
  ["a job's file", [], () => findInputFile(db, id, { name: "a" })],
  ["output", [], () => recordOutput(db, { ...attempt, leaseId: lease }, [part], 10, now)],
  ["the end of output", [], () => outputEnds(db, attempt)],
  ["a position in output", [], () => findOutput(db, attempt, { stdout: 1, stderr: 1 })],
  ["a part of output", [], () => readOutput(db, attempt, 0)],
  ["a batch's standing", [], () => readStandings(handleOf(db), [id])],
  ["old batches", [], () => forgetBatches(db, now, 10)],
  ["old tombstones", [], () => forgetTombstones(db, now, 10)],
  [
    "old builds",
    ["SCAN builds", "SCAN builds", "SCAN builds USING COVERING INDEX builds_built"],
    () => removeBuilds(db, now, 10),
  ],
  ["due removals", [], () => dueRemovals(db, now, 10)],
])("%s scans no other table or index", async (_what, expected, run) => {
  const isScan = (step: string) => /^SCAN (?!CONSTANT|json_each|waiting|\()/.test(step);
  const plans = await planner.plansOf(run);
  expect(plans.length).toBeGreaterThan(0);
  expect(plans.filter(isScan)).toEqual(expected);
});

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
  [
    "what may wait for an agent",
    Array.from({ length: 2 }, () => "SCAN sessions USING INDEX sessions_queue"),
    async () => {
      const deps = testDeps(db, "", () => now);
      const request = new ScriptedAgent("http://unused", "").pollRequest({ free_sessions: 1 });
      await readTodo(deps, request, await readEnvironments(deps));
    },
  ],
  ["due sessions", ["SCAN sessions USING INDEX sessions_open"], () => dueSessions(db, { now })],
  ["old sessions", [], () => forgetSessions(db, now, 10)],
  ["the sessions of an agent", [], () => sessionsOf(db, "agent")],
  ["a list of sessions", [], () => listSessions(handleOf(db), {}, 10, 0)],
  ["a list of open sessions", [], () => listSessions(handleOf(db), { status: "ready" }, 10, 0)],
  ["which sessions are busy", [], () => busySessions(handleOf(db), ["s"])],
  ["the calls of a session", [], () => list({ sessionId: "s" })],
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

/**
 * Indexes have conditions on the status, so SQLite looks at such a parameter when it plans, and prepares the statement
 * again for each value: a poll took 0.5 ms longer. It plans nothing where it finds the row by its id.
 */
test("no statement compares a status with a parameter, unless it finds its row by the id", async () => {
  await import("../app.ts");
  const compared = /(where|and|or|not|on|when)[\s(]+("?\w+"?\.)?"?status"? (=|<>) \?/i;
  expect(registry.length).toBeGreaterThan(200);
  const byId = /where \("\w+"\."id" = \? and /;
  const texts = registry.map(({ text }) => text).filter((text) => !byId.test(text));
  expect(texts.filter((text) => compared.test(text))).toEqual([]);
});

test("a claim compiles no trigger of an execution's end: a server compiles each statement anew", async () => {
  const { rows } = await db.client.execute(
    "select name from sqlite_schema where type = 'trigger' and sql like '%UPDATE OF `status` ON `executions`%' order by name",
  );
  expect(rows.map(({ name }) => name)).toEqual(["executions_final", "executions_moved"]);
});
