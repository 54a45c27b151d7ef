import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runChecks } from "./test/checks.ts";
import { readConfig } from "./command/config.ts";
import { OperatorError, runMain } from "./command/operator-error.ts";
import { toolEnv } from "./command/run-tool.ts";
import { say } from "./command/say.ts";
import { ensureChromium } from "./setup/chromium.ts";
import { ensureCompose } from "./setup/compose.ts";
import { connect } from "./setup/connect.ts";
import { ensureNetworkTools } from "./setup/network-tools.ts";
import { ensurePodman } from "./setup/podman.ts";
import { ensureRegistry } from "./setup/registry.ts";
import { ensureScienceImage } from "./setup/science-image.ts";
import { setUp } from "./setup/set-up.ts";
import { ensureSwift } from "./setup/swift.ts";
import { ensureSystemdAnalyze } from "./setup/systemd.ts";
import { type TestReport, summarize } from "./test/summary.ts";

const HELP = `Usage: npm test -- [--no-check] [arguments for vitest, such as a path]

Sets up what the tests need (container engine, images, browser, S3 service, registry, compose), runs format, lint and
type checks, then all tests.
`;

await runMain(async () => {
  const { noCheck, help, rest } = readArguments(process.argv.slice(2));
  if (help) {
    process.stdout.write(HELP);
    return;
  }
  const { dockerHost, image } = await setUp(readConfig(process.env));
  await ensureChromium();
  await ensureNetworkTools();
  await ensurePodman();
  await ensureSystemdAnalyze();
  await ensureSwift();
  await ensureRegistry();
  await ensureCompose();
  say(`testing against the engine at ${dockerHost} with the image ${image}`);
  const science = ensureScienceImage(connect(dockerHost));
  const [checked] = await Promise.all([noCheck || runChecks(), science]);
  const { passed, summary } = await runTests(dockerHost, rest);
  if (!checked) say("not all checks passed, see above the tests");
  process.stdout.write(`${summary}\n`);
  process.exitCode = checked && passed ? 0 : 1;
});

function readArguments(args: string[]): { noCheck: boolean; help: boolean; rest: string[] } {
  const rest = args.filter((arg) => arg !== "--no-check");
  const help = rest.includes("--help") || rest.includes("-h");
  return { noCheck: rest.length < args.length, help, rest };
}

/** Runs vitest; says whether everything passed, and the numbers in one line. */
async function runTests(
  dockerHost: string,
  args: string[],
): Promise<{ passed: boolean; summary: string }> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-test-"));
  const report = join(folder, "report.json");
  try {
    const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
    const vitest = spawn("vitest", ["run", ...reporters, ...args], {
      stdio: "inherit",
      env: { ...toolEnv, AIRLOCK_DOCKER_HOST: dockerHost },
    });
    const [code] = (await once(vitest, "exit")) as [number | null];
    if (!existsSync(report)) throw new OperatorError("vitest ran no test, see above");
    const numbers = JSON.parse(readFileSync(report, "utf8")) as TestReport;
    return { passed: code === 0, summary: summarize(numbers) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}
