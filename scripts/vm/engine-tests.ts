import { tiersOf } from "../test/tiers.ts";
import { quote } from "./machine/guest.ts";
import { IN_GUEST } from "./machine/project-disk.ts";
import type { World } from "./sections.ts";

type TestFile = {
  file: string;
  /** The titles of the rows that run; without it all do. */
  rows?: RegExp;
};

/**
 * Tests that run in the guest too: what cgroup v2, systemd and a current kernel could change. They are few, because
 * emulation is 5 to 20 times slower; none holds CPU times or durations to a bound.
 */
export const GUEST_TESTS: readonly TestFile[] = [
  { file: "agent/sandbox/testing/control-groups.engine.test.ts" },
  { file: "agent/sandbox/filter/seccomp-filter.engine.test.ts" },
  { file: "agent/sandbox/hostile/privileges.engine.test.ts" },
  { file: "agent/sandbox/hostile/memory.engine.test.ts" },
  {
    file: "agent/sandbox/hostile/processes.engine.test.ts",
    rows: /ignores SIGTERM|fork bomb|thread bomb|does not reach the supervisor|a daemon/,
  },
];

/**
 * Tests that make and use images: what another image store could change. Images that go from engine to engine are left
 * out: without a registry that does not work with containerd's store (docs/guides/packages.md).
 */
export const IMAGE_TESTS: readonly TestFile[] = [
  {
    file: "agent/build/image-build.engine.test.ts",
    rows: /makes an image|leaves only the package/,
  },
];

type Row = { status: string; fullName: string; meta?: { cannot?: string } };

type Report = {
  numPassedTests: number;
  numFailedTests: number;
  testResults: { message: string; assertionResults: Row[] }[];
};

const REPORT = "/tmp/report.json";
const TIMEOUT_MS = 4 * 3_600_000;

/** Runs files of tests in the guest against its engine, each as one check. */
export async function runTests(
  { guest, checks: { check, note } }: World,
  files: readonly TestFile[],
): Promise<void> {
  for (const { file, rows } of files) {
    const only = rows ? `--testNamePattern=${quote(rows.source)}` : "";
    await check(file, async () => {
      const script = `# ${file}
cd ${IN_GUEST.project}
export PATH=$PWD/node_modules/.bin:$PATH
export AIRLOCK_DOCKER_HOST=unix:///var/run/docker.sock
rm -f ${REPORT}
export TEST_PATIENCE=12
vitest run --project ${tiersOf(file)[0]} --retry 0 --reporter=json --outputFile=${REPORT} ${only} ${file} >/tmp/vitest.log 2>&1 || true
cat ${REPORT} 2>/dev/null || { tail -n 30 /tmp/vitest.log; exit 1; }`;
      const report = JSON.parse(await guest.run(script, TIMEOUT_MS)) as Report;
      if (!rows) for (const line of skipped(report)) note(line);
      if (report.numFailedTests > 0 || report.numPassedTests === 0) throw new Error(tell(report));
    });
  }
}

function skipped({ testResults }: Report): string[] {
  return testResults
    .flatMap(({ assertionResults }) => assertionResults)
    .filter(({ status }) => status !== "passed" && status !== "failed")
    .map(({ fullName, meta }) => `not run: ${fullName}${meta?.cannot ? `: ${meta.cannot}` : ""}`);
}

function tell(report: Report): string {
  const failed = report.testResults.flatMap(({ message, assertionResults }) => [
    message,
    ...assertionResults
      .filter(({ status }) => status === "failed")
      .map((result) => `${result.fullName}\n${failureOf(result)}`),
  ]);
  const { numPassedTests: passed, numFailedTests } = report;
  return [`${passed} passed, ${numFailedTests} failed`, ...failed.filter(Boolean)].join("\n");
}

function failureOf(result: object): string {
  const { failureMessages = [] } = result as { failureMessages?: string[] };
  return failureMessages.map((message) => message.split("\n").slice(0, 12).join("\n")).join("\n");
}
