import { isTerminal } from "../../shared/wire/execution.ts";
import {
  type EventData,
  endOutputMaxBytes,
  type JobEvent,
} from "../../shared/wire/client/events.ts";
import { liveBytes, streamNames } from "../../shared/wire/output.ts";
import type { Deps } from "../deps.ts";
import type { EventCursor } from "../domain/event-cursor.ts";
import { explainWait } from "../jobs/availability.ts";
import { timestamp, toRecord } from "../jobs/record.ts";
import { backstopMs } from "../waiting.ts";
import { findAgent } from "../store/agents/agents.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { queuePosition } from "../store/jobs/read.ts";
import { readSmallOutput } from "../store/output/result-parts.ts";
import { resultOutput } from "./output.ts";
import { beginAttempt, continueFrom, type Place } from "./place.ts";

type Events = AsyncGenerator<JobEvent>;

/** Returns a function that yields the events a client lacks, given a state of the execution. */
export function createEventReader(deps: Deps, from: EventCursor | undefined) {
  let place: Place | undefined = from && continueFrom(deps, from);
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
    place ??= beginAttempt(deps, isOver ? current : 1);
    // An agent gave back a lease that it had not used: the attempt begins again.
    if (place.cursor.attempt > current) place = beginAttempt(deps, current);
    for (; place.cursor.attempt < current; place = beginAttempt(deps, place.cursor.attempt + 1)) {
      if (place.cursor.state === "lost") continue;
      if (!isOver) yield* place.texts(e, place.stored(e.id));
      const { attempt } = place.cursor;
      yield {
        event: "retry",
        id: place.tick({ state: "lost" }),
        data: common(e, attempt, e.availableAt),
      };
      explained = { at: -Infinity, text: "" };
    }
    if (e.status === "queued") {
      yield* queued(e);
      return;
    }
    if (e.leaseId !== null) {
      if (place.cursor.state === "new") yield await running(deps, e, place);
      if (!isOver || e.resultHash === null) yield* place.texts(e, place.stored(e.id));
      if (!isOver) {
        yield* withheld(deps, e, place);
        return;
      }
      if (e.resultHash !== null) yield* result(deps, e, place);
      for (const name of streamNames) yield* place.flush(e, name);
    }
    yield* ended(deps, e, place);
  };
}

function common(e: ExecutionRow, attempt: number, at: number | null): EventData<"retry"> {
  return { job_id: e.id, attempt, at: timestamp(at ?? e.createdAt) };
}

async function running({ db }: Deps, e: ExecutionRow, place: Place): Promise<JobEvent> {
  const agent = e.agentId === null ? undefined : await findAgent(db, e.agentId);
  const id = place.tick({ state: "running" });
  const data = { ...common(e, e.attempt, e.startedAt), agent: agent?.name ?? null };
  return { event: "status", id, data: { ...data, status: "running" } };
}

/** Output of a stream beyond this many bytes is sent when the code has ended. */
function* withheld({ config, now }: Deps, e: ExecutionRow, place: Place): Generator<JobEvent> {
  const offset = liveBytes(config.max_stdout_bytes);
  for (const stream of streamNames) {
    if (place.cursor.withheld[stream] || place.read(stream) < offset) continue;
    const id = place.tick({ withheld: { ...place.cursor.withheld, [stream]: true } });
    yield { event: "held", id, data: { ...common(e, e.attempt, now()), stream, offset } };
  }
}

async function* result(deps: Deps, e: ExecutionRow, place: Place): Events {
  for (const name of streamNames) {
    place.drop(name);
    const from = place.cursor[name];
    yield* place.texts(e, resultOutput(deps, e.id, name, from, e.endedAt ?? 0));
    yield* place.flush(e, name);
  }
}

async function* ended({ db }: Deps, e: ExecutionRow, place: Place): Events {
  const isTruncated = { stdout: e.stdoutTruncated, stderr: e.stderrTruncated };
  for (const stream of streamNames) {
    if (!isTruncated[stream] || place.cursor.truncated[stream]) continue;
    const id = place.tick({ truncated: { ...place.cursor.truncated, [stream]: true } });
    yield { event: "truncated", id, data: { ...common(e, e.attempt, e.endedAt), stream } };
  }
  const output = await readSmallOutput(db, e.id, endOutputMaxBytes);
  const isLarge = output === "large";
  const payload = { ...noPayload, output: isLarge ? null : output };
  const full = { execution: e, payload, artifacts: [], inputFiles: [] };
  const { stdout: _stdout, stderr: _stderr, ...record } = toRecord(full, undefined);
  const more = isLarge && { output_url: `/jobs/${e.id}/result` };
  const data = { ...common(e, e.attempt, e.endedAt), ...record, ...more };
  yield { event: "end", id: place.tick({ state: "ended" }), data };
}

const noPayload = { stdin: null, args: null, stdout: null, stderr: null };
