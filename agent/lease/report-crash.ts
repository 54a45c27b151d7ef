import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { Client } from "../api/client.ts";

export type ReportCrashDeps = {
  readonly client: Pick<Client, "reportCrash">;
  readonly log: Logger;
};

/**
 * Reports agents of this host whose processes have died, so that their jobs are leased again at
 * once, and not when their leases end. The returned function tells whether the API knows of one; it
 * does not wait for that, so ask again later.
 */
export function createCrashReporter(
  { client, log }: ReportCrashDeps,
  end: AbortSignal,
): (agentId: string) => boolean {
  const isKnown = new Map<string, boolean>();

  async function report(agentId: string): Promise<void> {
    try {
      await client.reportCrash(agentId, end);
    } catch (error) {
      if (end.aborted) return;
      // It may have had another token: its leases end by themselves.
      log.warn("the crash of agent {agentId} is not reported: {reason}", {
        agentId,
        reason: describeError(error),
      });
    }
    isKnown.set(agentId, true);
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
