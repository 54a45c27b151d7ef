import { expect, vi } from "vitest";
import type { LeasedJob, ResultReport } from "../../shared/wire/agent/lease.ts";
import {
  type IndexOptions,
  type PackageIndex,
  startIndex,
} from "../sandbox/testing/package-index.ts";
import type { Wheel } from "../sandbox/testing/wheel.ts";
import type { AgentProcess } from "./agent-process.ts";
import { api, leaseLabels, nextResult, printed, start as startAgent } from "./agent-world.ts";
import { testJob } from "./test-agent.ts";

export { api, folder, name, nextResult, useWorld } from "./agent-world.ts";

export const MiB = 1024 ** 2;
export const probe = { name: "airlock_probe", version: "1.0", source: "n = 42\n" };
export const code = "import airlock_probe; print(airlock_probe.n)";
export const wheel = (letter: string, mebibytes: number): Wheel => ({
  ...probe,
  name: `airlock_${letter}`,
  files: { [`${letter}.txt`]: letter.repeat(mebibytes * MiB) },
});

export const indexOf = (options: Partial<IndexOptions> = {}): Promise<PackageIndex> =>
  startIndex({ wheels: [probe], ...options });

/** An agent that forks its jobs and lets them bring packages, from this index where there is one. */
export const start = (
  index: PackageIndex | undefined,
  env: Record<string, string> = {},
): Promise<AgentProcess> =>
  startAgent({
    AIRLOCK_WARM_POOL_SIZE: "0",
    AIRLOCK_CONTAINER_BACKEND: "zygote",
    AIRLOCK_ALLOW_RUNTIME_REQUIREMENTS: "true",
    ...(index && { AIRLOCK_PIP_INDEX_URL: index.url }),
    ...env,
  });

export const cached = { AIRLOCK_ENABLE_RUNTIME_DEPENDENCY_CACHE: "true" };

export function offer(job: Partial<LeasedJob> = {}): LeasedJob {
  const offered = testJob({ code, requirements: ["airlock-probe"], ...job });
  api.offer(offered);
  return offered;
}
export async function run(job: Partial<LeasedJob> = {}): Promise<ResultReport> {
  offer(job);
  return nextResult();
}
/** What ended, and what it printed. */
export const told = (report: ResultReport) => [
  report.status,
  printed(report) || report.error?.message,
];

/** Waits until an agent's container with a label of this kind runs. */
export async function untilRunning(kind: string): Promise<void> {
  await vi.waitFor(
    async () => {
      expect(await leaseLabels({ status: ["running"] })).toContainEqual(
        expect.stringContaining(kind),
      );
    },
    { timeout: 240_000, interval: 10 },
  );
}
