import { matchesGlob } from "node:path";
import { type Tier, tiers } from "../setup/tools.ts";

/** Tiers that run side by side: most of their tests wait for another process. */
export const stages: readonly (readonly Tier[])[] = [
  ["unit"],
  ["service", "engine", "zygote"],
  ["lab"],
];

export const testFiles = "{api,agent,shared,scripts,clients}/**/*.test.ts";

/**
 * Tests that the lab repeats with another runtime, on another platform, in another setting, or with more random
 * requests.
 */
export const repeatedFiles = `{${[
  "agent/job/run.engine",
  "agent/sandbox/hostile/*",
  "agent/sandbox/{cpu-count,randomness,sessions,session-files,session-tools,usage,filter/seccomp-probe}.engine",
  "api/tests/{docs,fuzz,fuzz-agent}.service",
  "scripts/e2e/{job-types,sessions,session-failures,session-files,session-tools,whole}.engine",
  "scripts/hostile/{secrets,whole-path}.engine",
  "scripts/soak/tenants.engine",
].join()}}.test.ts`;

/** Tests of sandboxes that can be forked: the engine tier starts each sandbox, the zygote tier forks it. */
export const sandboxFiles =
  "agent/sandbox/{hostile/*,cpu-count,inputs,program,tools,randomness,usage,filter/seccomp-probe,conversation/install-packages,sessions,session-files,session-tools}.engine.test.ts";

/**
 * The tier of a test file is in its name: `x.service.test.ts`; one that says nothing is a unit test. What is the same
 * in a fork and in a container is a test of the zygote tier alone, because a fork takes a fifth of the CPU time.
 */
export function tiersOf(file: string): Tier[] {
  const own = tiers.find((tier) => file.endsWith(`.${tier}.test.ts`)) ?? "unit";
  const again: Tier[] = [];
  if (matchesGlob(file, sandboxFiles)) again.push("zygote");
  if (matchesGlob(file, repeatedFiles)) again.push("lab");
  return [own, ...again];
}
