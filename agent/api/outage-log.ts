import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { Clock } from "../waiting/clock.ts";

/**
 * Logs one line when an outage of the API begins and one when it ends; failures in between are
 * logged at debug level.
 */
export type OutageLog = {
  readonly failed: (error: unknown, waitMs: number) => void;
  readonly answered: () => void;
};

export function createOutageLog({ log, clock }: { log: Logger; clock: Clock }): OutageLog {
  let sinceMs: number | null = null;

  function failed(error: unknown, waitMs: number): void {
    const values = { seconds: (waitMs / 1000).toFixed(1), reason: describeError(error) };
    const line = "poll failed, next in {seconds} s: {reason}";
    if (sinceMs === null) log.warn(line, values);
    else log.debug(line, values);
    sinceMs ??= clock.nowMs();
  }

  function answered(): void {
    if (sinceMs === null) return;
    const seconds = ((clock.nowMs() - sinceMs) / 1000).toFixed(1);
    log.info("the API answers again, after {seconds} s", { seconds });
    sinceMs = null;
  }

  return { failed, answered };
}
