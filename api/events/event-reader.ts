import { isTerminal } from "../../shared/wire/execution.ts";
import {
  type EventData,
  endOutputMaxBytes,
  type JobEvent,
} from "../../shared/wire/client/events.ts";
import { liveBytes, streamNames } from "../../shared/wire/output.ts";
import type { ClientDeps } from "../deps.ts";
import type { EventCursor } from "../domain/event-cursor.ts";
import { explainWait } from "../jobs/availability.ts";
import { timestamp, toRecord, toResultItem, toToolCall } from "../jobs/record.ts";
import { backstopMs } from "../waiting.ts";
import { findAgent } from "../store/agents/agents.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { emptyPayload, queuePosition } from "../store/jobs/read.ts";
import { itemsAfter } from "../store/output/items.ts";
import { readSmallOutput } from "../store/output/result-parts.ts";
import { resultOutput } from "./output.ts";
import { beginAttempt, continueFrom, type FollowerPosition } from "./follower-position.ts";

type Events = AsyncGenerator<JobEvent>;

/** Returns a function that yields the events a client lacks, given a state of the execution. */
export function createEventReader(deps: ClientDeps, from: EventCursor | undefined) {
  let follower: FollowerPosition | undefined = from && continueFrom(deps, from);
  let explained = { at: -Infinity, text: "" };

  async function* queued(e: ExecutionRow): Events {
    const at = deps.now();
    if (at - explained.at < backstopMs) return;
    const position = await queuePosition(deps.db, e);
    const reason = await explainWait(deps, e, position);
    const isSame = `${position} ${reason}` === explained.text;
    explained = { at, text: `${position} ${reason}` };
    if (isSame) return;
    const data = { ...common(e, e.attempt, at), status: "queued" as const, reason, position };
    yield { event: "status", data };
  }

  return async function* readEvents(e: ExecutionRow): Events {
    const isOver = isTerminal(e.status);
    const current = e.leaseId === null ? e.attempt + 1 : e.attempt;
    // Output of lost attempts can be replayed until the end.
    follower ??= beginAttempt(deps, isOver ? current : 1);
    // An agent gave back a lease that it had not used: the attempt begins again.
    if (follower.cursor.attempt > current) follower = beginAttempt(deps, current);
    for (
      ;
      follower.cursor.attempt < current;
      follower = beginAttempt(deps, follower.cursor.attempt + 1)
    ) {
      if (follower.cursor.state === "lost") continue;
      if (!isOver) yield* follower.texts(e, follower.stored(e.id));
      const { attempt } = follower.cursor;
      yield {
        event: "retry",
        id: follower.move({ state: "lost" }),
        data: common(e, attempt, e.availableAt),
      };
      explained = { at: -Infinity, text: "" };
    }
    if (e.status === "queued") {
      yield* queued(e);
      return;
    }
    if (e.leaseId !== null) {
      if (follower.cursor.state === "new") yield await running(deps, e, follower);
      if (!isOver || e.resultHash === null) yield* follower.texts(e, follower.stored(e.id));
      if (!isOver) {
        yield* shownItems(deps, e, follower);
        yield* withheld(deps, e, follower);
        return;
      }
      if (e.resultHash !== null) yield* result(deps, e, follower);
      for (const name of streamNames) yield* follower.flush(e, name);
      yield* shownItems(deps, e, follower);
    }
    yield* ended(deps, e, follower);
  };
}

function common(e: ExecutionRow, attempt: number, at: number | null): EventData<"retry"> {
  return { job_id: e.id, attempt, at: timestamp(at ?? e.createdAt) };
}

async function running(
  { db }: ClientDeps,
  e: ExecutionRow,
  follower: FollowerPosition,
): Promise<JobEvent> {
  const agent = e.agentId === null ? undefined : await findAgent(db, e.agentId);
  const id = follower.move({ state: "running" });
  const data = { ...common(e, e.attempt, e.startedAt), agent: agent?.name ?? null };
  return { event: "status", id, data: { ...data, status: "running" } };
}

/**
 * What the code has shown, and its calls that wait for an answer. The offsets of an item say after which output it
 * came. A result brings items and their output at once: where `e` is of before it, they wait for the next state.
 */
async function* shownItems(
  { db }: ClientDeps,
  e: ExecutionRow,
  follower: FollowerPosition,
): Events {
  const isRunning = e.status === "running";
  while (e.results !== null) {
    const { items, attempt } = follower.cursor;
    const read = () => itemsAfter(db, { executionId: e.id, attempt }, items, isRunning);
    const rows = await db.share(`items ${e.id} ${attempt} ${items} ${isRunning}`, read);
    if (rows.length === 0) return;
    await db.durable();
    for (const row of rows) {
      const id = follower.move({ items: row.number });
      const place = common(e, attempt, row.at);
      if (row.kind === "display") {
        yield { event: "display", id, data: { ...place, ...toResultItem(row) } };
      } else if (row.answered === null && isRunning) {
        yield { event: "tool_call", id, data: { ...place, ...toToolCall(row) } };
      }
    }
  }
}

/** Output of a stream beyond this many bytes is sent when the code has ended. */
function* withheld(
  { config, now }: ClientDeps,
  e: ExecutionRow,
  follower: FollowerPosition,
): Generator<JobEvent> {
  const offset = liveBytes(config.max_stdout_bytes);
  for (const stream of streamNames) {
    if (follower.cursor.withheld[stream] || follower.read(stream) < offset) continue;
    const id = follower.move({ withheld: { ...follower.cursor.withheld, [stream]: true } });
    yield { event: "held", id, data: { ...common(e, e.attempt, now()), stream, offset } };
  }
}

async function* result(deps: ClientDeps, e: ExecutionRow, follower: FollowerPosition): Events {
  for (const name of streamNames) {
    follower.drop(name);
    const from = follower.cursor[name];
    yield* follower.texts(e, resultOutput(deps, e.id, name, from, e.endedAt ?? 0));
    yield* follower.flush(e, name);
  }
}

async function* ended({ db }: ClientDeps, e: ExecutionRow, follower: FollowerPosition): Events {
  const isTruncated = { stdout: e.stdoutTruncated, stderr: e.stderrTruncated };
  for (const stream of streamNames) {
    if (!isTruncated[stream] || follower.cursor.truncated[stream]) continue;
    const id = follower.move({ truncated: { ...follower.cursor.truncated, [stream]: true } });
    yield { event: "truncated", id, data: { ...common(e, e.attempt, e.endedAt), stream } };
  }
  const output = await readSmallOutput(db, e.id, endOutputMaxBytes);
  const isLarge = output === "large";
  const payload = { ...emptyPayload, output: isLarge ? null : output };
  const full = { execution: e, payload, left: {}, artifacts: [], inputFiles: [] };
  const { stdout: _stdout, stderr: _stderr, ...record } = toRecord(full, undefined);
  const more = isLarge && { output_url: `/jobs/${e.id}/result` };
  const data = { ...common(e, e.attempt, e.endedAt), ...record, ...more };
  yield { event: "end", id: follower.move({ state: "ended" }), data };
}
