import type { Logger } from "@logtape/logtape";
import { describeError } from "../../../shared/log-line.ts";
import { backoffMs } from "../../waiting/backoff.ts";
import type { ChangeSignal } from "../../waiting/change-signal.ts";
import type { Clock } from "../../waiting/clock.ts";
import { EngineError } from "../../sandbox/errors.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { SandboxRequest } from "../../sandbox/sandbox-request.ts";
import type { Kind } from "./kind.ts";

export type RefillDeps = {
  readonly start: (request: SandboxRequest, signal: AbortSignal) => Promise<Sandbox>;
  /** The kind to fill now, if there is one. */
  readonly next: () => Kind | undefined;
  readonly put: (kind: Kind, sandbox: Sandbox) => void;
  /** Called when the engine failed a start, so that it is checked. */
  readonly checkEngine: () => void;
  readonly clock: Clock;
  readonly changes: ChangeSignal;
  readonly log: Logger;
};

export type RefillSignals = {
  /** Start no more. */
  readonly end: AbortSignal;
  /** Also abort the starts in progress. */
  readonly halt: AbortSignal;
};

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 60_000;

/** Starts containers ahead of their jobs, one after the other, until `end`. */
export async function refill(deps: RefillDeps, { end, halt }: RefillSignals): Promise<void> {
  const { next, changes } = deps;
  for (;;) {
    await changes.waitUntil(() => end.aborted || next() !== undefined);
    if (end.aborted) return;
    const kind = next();
    if (!kind) continue;
    kind.starting += 1;
    const sandbox = await start(deps, kind, halt);
    kind.starting -= 1;
    if (sandbox) deps.put(kind, sandbox);
    while (kind.waiting.length > kind.starting) kind.waiting.shift()?.(null);
    changes.notify();
  }
}

/** Starts one container; null if that failed, and then the kind pauses for a while. */
async function start(deps: RefillDeps, kind: Kind, halt: AbortSignal): Promise<Sandbox | null> {
  const { clock, log } = deps;
  const beganMs = clock.nowMs();
  try {
    const sandbox = await deps.start(kind.request, halt);
    const tookMs = clock.nowMs() - beganMs;
    kind.startMs = kind.startMs === 0 ? tookMs : kind.startMs * 0.7 + tookMs * 0.3;
    kind.failures = 0;
    return sandbox;
  } catch (error) {
    if (halt.aborted) return null;
    kind.failures += 1;
    const restMs = backoffMs(kind.failures, FIRST_WAIT_MS, LONGEST_WAIT_MS);
    kind.retryMs = clock.nowMs() + restMs;
    clock.sleep(restMs, halt).then(deps.changes.notify, () => {});
    log.warn("no container kept ready for {jobType}, next in {seconds} s: {reason}", {
      jobType: kind.request.jobType,
      seconds: (restMs / 1000).toFixed(1),
      reason: describeError(error),
    });
    if (!(error instanceof EngineError)) return null;
    if (error.transient) deps.checkEngine();
    // Permanent, for example a missing image: nothing is started until the next job of the kind.
    else kind.askedMs = 0;
    return null;
  }
}
