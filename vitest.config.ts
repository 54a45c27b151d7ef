import { existsSync, readFileSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { type Tier, tiers } from "./scripts/setup/tools.ts";
import { repeatedFiles, sandboxFiles, stages, testFiles } from "./scripts/test/tiers.ts";

/** Two cores compute unit tests; most others wait for processes and containers. */
const workers: Record<Tier, number> = { unit: 2, service: 4, engine: 4, zygote: 4, lab: 2 };

/** An emulated machine needs more time: scripts/lab/vm sets the factor. */
const patience = Number(process.env["TEST_PATIENCE"] ?? 1);

/** What hangs is ended; what is right has its time on the slowest machine. */
const patienceMs: Record<Tier, number> = {
  unit: 60_000,
  service: 300_000,
  engine: 300_000,
  zygote: 300_000,
  lab: 300_000,
};

/**
 * The folder of temporary files: in memory, if that may hold programs and has room. On a disk, a third of the time of
 * tests of the store is waiting for it.
 */
function temporary(): string {
  const memory = "/dev/shm";
  if (!existsSync(memory)) return tmpdir();
  if (/ \/dev\/shm .*noexec/.test(readFileSync("/proc/mounts", "utf8"))) return tmpdir();
  const { bavail, bsize } = statfsSync(memory);
  return bavail * bsize > 4 * 1024 ** 3 ? memory : tmpdir();
}

function filesOf(tier: Tier): string[] {
  if (tier === "unit") return [testFiles];
  const own = testFiles.replace("*.test", `*.${tier}.test`);
  if (tier === "zygote") return [own, sandboxFiles];
  return tier === "lab" ? [own, repeatedFiles] : [own];
}

/** The files that take longest, longest first: begun first, they do not run on alone at the end. */
const LONGEST = [
  "api/tests/worker.service.test.ts",
  "clients/console/tests/views.service.test.ts",
  "api/tests/node.service.test.ts",
  "agent/backends/forks.engine.test.ts",
  "clients/console/tests/mishaps.service.test.ts",
  "scripts/lab/sessions.engine.test.ts",
  "scripts/lab/job-types.engine.test.ts",
  "agent/packages/cache.engine.test.ts",
  "scripts/lab/soak/tenants.engine.test.ts",
  "agent/sandbox/python.engine.test.ts",
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted((one, other) => rank(one) - rank(other));
  }
}

function rank({ moduleId }: TestSpecification): number {
  const place = LONGEST.findIndex((name) => moduleId.endsWith(name));
  return place === -1 ? LONGEST.length : place;
}

export default defineConfig({
  test: {
    pool: "forks",
    // Room for the modules of all files that a process runs: without it, V8 marks its heap again and again.
    execArgv: ["--initial-old-space-size=2048", "--min-semi-space-size=32"],
    sequence: { sequencer: LongestFirst },
    projects: tiers.map((name) => ({
      extends: true,
      test: {
        name,
        include: filesOf(name),
        exclude: name === "unit" ? ["**/*.{service,engine,zygote,lab}.test.ts"] : [],
        env: {
          TEST_TIER: name,
          ...((name === "unit" || name === "service") && { TMPDIR: temporary() }),
        },
        // Test files share the modules that they import: importing them anew for each file took two
        // thirds of the CPU time of unit tests.
        isolate: name === "lab",
        globalSetup: name === "unit" ? [] : ["./scripts/test/global-set-up.ts"],
        setupFiles: ["./scripts/test/file-set-up.ts"],
        testTimeout: patience * patienceMs[name],
        hookTimeout: patience * patienceMs[name],
        // Vitest's default is one second, too short for a busy machine.
        expect: { poll: { timeout: (patience * patienceMs[name]) / 3 } },
        retry: name === "unit" ? 0 : 1,
        maxWorkers: workers[name],
        sequence: { groupOrder: stages.findIndex((stage) => stage.includes(name)) },
      },
    })),
  },
});
