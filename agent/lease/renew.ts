import type { Logger } from "@logtape/logtape";
import type { AgentIdentity } from "../../shared/wire/agent/lease.ts";
import { describeError } from "../../shared/log-line.ts";
import { ApiError } from "../api/errors.ts";
import { backoffMs } from "../waiting/backoff.ts";
import type { Client } from "../api/client.ts";
import type { Clock } from "../waiting/clock.ts";
import { agentStatus, learnLeases, type StatusDeps } from "./status.ts";

export type RenewDeps = StatusDeps & {
  readonly agent: AgentIdentity;
  readonly client: Pick<Client, "renew">;
  readonly clock: Clock;
  readonly log: Logger;
};

const FIRST_WAIT_MS = 500;

/**
 * Renews the held leases at the API's interval until `end`, independently of the poll.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function renewLeases(deps: RenewDeps, end: AbortSignal): Promise<void> {
  const { leases, builds, calls, sessions, clock, log } = deps;
  const holdsNone = (): boolean =>
    [leases, builds, calls, sessions].every((held) => held.ids().length === 0);
  let failures = 0;
  while (!end.aborted) {
    const everyMs = leases.intervals().renew_every_s * 1000;
    const waitMs = failures === 0 ? everyMs : backoffMs(failures, FIRST_WAIT_MS, everyMs);
    await clock.sleep(waitMs, end).catch(() => {});
    if (end.aborted || holdsNone()) continue;
    try {
      await renewOnce(deps, end);
      failures = 0;
    } catch (error) {
      if (end.aborted) return;
      if (!(error instanceof ApiError) || error.endsAgent) throw error;
      failures += 1;
      const reason = describeError(error);
      if (failures === 1) log.warn("renewal failed: {reason}", { reason });
      else log.debug("renewal failed again: {reason}", { reason });
    }
  }
}

async function renewOnce(deps: RenewDeps, end: AbortSignal): Promise<void> {
  const { client, leases, clock } = deps;
  const status = agentStatus(deps.agent, deps);
  const askedMs = clock.nowMs();
  // A renewal that hangs is given up when the next one is due.
  const timeoutMs = leases.intervals().renew_every_s * 1000;
  const reply = await client.renew(status, timeoutMs, end);
  learnLeases(deps, reply, status, askedMs);
}
