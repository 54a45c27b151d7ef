import { isTerminal } from "../../shared/wire/execution.ts";
import type { JobEvent } from "../../shared/wire/client/events.ts";
import type { ClientDeps } from "../deps.ts";
import type { EventCursor } from "../domain/event-cursor.ts";
import { endIfOverdue } from "../jobs/wait.ts";
import { backstopMs } from "../waiting.ts";
import { keepFollowed } from "../jobs/followed.ts";
import { findExecution } from "../store/jobs/read.ts";
import { createEventReader } from "./event-reader.ts";

/**
 * The events of a job from a cursor on, as they happen, up to its `end`; "idle" where nothing has happened
 * for long. It reads only as fast as it is read, and any process can continue it. It ends early when the
 * signal aborts or the record is removed.
 *
 * @throws AppError 401 when the client's key has become void.
 */
export async function* follow(
  deps: ClientDeps,
  id: string,
  from: EventCursor | undefined,
  signal: AbortSignal,
): AsyncGenerator<JobEvent | "idle"> {
  const { db, notifier, now, silenceMs } = deps;
  const wakes = notifier.subscribe([`output:${id}`]);
  const readEvents = createEventReader(deps, from);
  let spokeAt = now();
  try {
    // Clients and proxies see at once that the stream has begun.
    yield "idle";
    while (!signal.aborted) {
      await deps.recheck();
      const execution = await db.share(`execution ${id}`, () => findExecution(db, id));
      if (!execution) return;
      if (await endIfOverdue(deps, execution)) continue;
      const isOver = isTerminal(execution.status);
      // Before the first event: an agent that claims the job after it knows that somebody follows it.
      if (!isOver && (await keepFollowed(deps, execution))) continue;
      await db.durable();
      for await (const event of readEvents(execution)) {
        await deps.recheck();
        yield event;
        spokeAt = now();
        if (signal.aborted) return;
      }
      if (isOver) return;
      await wakes.next(backstopMs, signal);
      if (now() - spokeAt < silenceMs) continue;
      yield "idle";
      spokeAt = now();
    }
  } finally {
    wakes.close();
  }
}
