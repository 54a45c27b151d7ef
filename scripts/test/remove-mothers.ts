import { randomUUID } from "node:crypto";
import { labels } from "../../agent/sandbox/sandbox.ts";
import { MOTHERS } from "../../agent/testing/backend.ts";
import { rawEngine } from "../../agent/testing/raw-engine.ts";

/**
 * One mother forks the jobs of all test files that a process runs. Vitest tells no process that its last file has
 * ended, so the mothers are removed at the end of the run.
 */
export default function removeMothers(): () => Promise<void> {
  const agentId = (process.env[MOTHERS] ??= randomUUID());
  return async () => {
    const filters = { label: [`${labels.agentId}=${agentId}`] };
    for (const { Id } of await rawEngine.listContainers({ all: true, filters })) {
      await rawEngine.getContainer(Id).remove({ force: true, v: true });
    }
  };
}
