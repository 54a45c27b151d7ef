import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { Clock } from "../waiting/clock.ts";

/** Until the token is replaced, every answer to a poll asks for it. */
const pauseMs = 60_000;

/** Replaces the host's token when the API asks for it, at most once a minute. */
export function createRotation(
  { log, clock }: { log: Logger; clock: Pick<Clock, "nowMs"> },
  rotate: () => Promise<string>,
): () => void {
  let triedMs = -Infinity;
  return () => {
    if (clock.nowMs() < triedMs + pauseMs) return;
    triedMs = clock.nowMs();
    rotate().then(
      (done) => log.info("{done}", { done }),
      (error: unknown) =>
        log.warn("the API asks for a new token, but the agent cannot make one: {reason}", {
          reason: describeError(error),
        }),
    );
  };
}
