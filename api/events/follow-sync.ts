import type { JobEvent } from "../../shared/wire/client/events.ts";
import type { ClientDeps } from "../deps.ts";
import { type EventCursor, parseCursor } from "../domain/event-cursor.ts";
import { rideOut } from "../jobs/ride-out.ts";
import { cancelIfRefused, cancelUnlessEnded } from "../jobs/wait.ts";
import { findExecution } from "../store/jobs/read.ts";
import { isStoreOutage } from "../store/outage.ts";
import { follow } from "./follow.ts";

/**
 * The events of a synchronous job, up to its end, also across outages of the database. If its client hangs
 * up or no agent is left to run it, the job is cancelled. With an idempotency key it continues, because a
 * repeated request may ask for its result.
 */
export async function* followSync(
  deps: ClientDeps,
  id: string,
  hasKey: boolean,
  signal: AbortSignal,
): AsyncGenerator<JobEvent | "idle"> {
  let from: EventCursor | undefined;
  let isOver = hasKey;
  try {
    while (from?.state !== "ended" && !signal.aborted) {
      try {
        for await (const event of follow(deps, id, from, signal)) {
          if (event !== "idle" && event.id !== undefined) from = parseCursor(event.id);
          isOver ||= from?.state === "ended";
          yield event;
          if (event !== "idle" && "status" in event.data && event.data.status === "queued")
            await cancelIfRefused(deps, id, hasKey);
        }
        if (from?.state !== "ended" && !(await findExecution(deps.db, id))) return;
      } catch (error) {
        if (!isStoreOutage(error)) throw error;
        await rideOut(deps, () => findExecution(deps.db, id));
      }
    }
  } finally {
    if (!isOver) await rideOut(deps, () => cancelUnlessEnded(deps, id)).catch(() => {});
  }
}
