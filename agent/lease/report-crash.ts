import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { Client } from "../api/client.ts";

export type ReportCrashDeps = {
  readonly client: Pick<Client, "reportCrash">;
  /** Called when a report has ended: what the dead agent left can be removed now. */
  readonly onReported: () => void;
  readonly log: Logger;
};

/**
 * Reports agents of this host whose processes have died, so that their jobs are leased again at
 * once, not only when their leases expire. The returned function starts the report and returns
 * whether it has ended; it does not wait, so call it again later.
 */
export function createCrashReporter(
  { client, onReported, log }: ReportCrashDeps,
  end: AbortSignal,
): (agentId: string) => boolean {
  const isKnown = new Map<string, boolean>();

  async function report(agentId: string): Promise<void> {
    try {
      await client.reportCrash(agentId, end);
    } catch (error) {
      if (end.aborted) return;
      // The dead agent may have had another token; then its leases expire by themselves.
      log.warn("could not report the crash of agent {agentId}: {reason}", {
        agentId,
        reason: describeError(error),
      });
    }
    isKnown.set(agentId, true);
    onReported();
  }

  return (agentId) => {
    const known = isKnown.get(agentId);
    if (known === undefined) {
      isKnown.set(agentId, false);
      void report(agentId);
    }
    return known ?? false;
  };
}
