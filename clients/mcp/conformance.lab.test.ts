import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startNode } from "../../api/testing/start-node.ts";
import { startWorkerd } from "../../api/testing/start-workerd.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

const run = promisify(execFile);
/** These pre-releases are the first that know the revision 2026-07-28. */
const pinned = "@modelcontextprotocol/conformance@0.2.0-alpha.12";

/** The scenarios that need no special tools, prompts or extensions, each with its checks that cannot pass. */
const scenarios: Record<string, string[]> = {
  "server-initialize": [],
  "server-session-lifecycle": [],
  ping: [],
  "tools-list": [],
  "resources-list": [],
  "sep-2164-resource-not-found": [],
  "server-sse-multiple-streams": [],
  "dns-rebinding-protection": [],
  "http-header-validation": [],
  "input-required-result-unsupported-methods": [],
  // These four checks need special tools.
  "server-stateless": [
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
  ],
  // The server has no prompts.
  caching: ["sep-2549-prompts-list-caching-hints"],
};

let folder: string;
beforeAll(async () => {
  folder = tempFolder();
  const options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts"];
  await run("npm", ["install", "--prefix", folder, ...options, pinned]);
});

async function checksOf(scenario: string, url: string) {
  const results = mkdtempSync(join(folder, "results-"));
  const program = join(folder, "node_modules/.bin/conformance");
  const args = ["server", "--url", `${url}/mcp`, "--scenario", scenario, "--output-dir", results];
  // It ends with 1 if a check failed.
  await run(process.execPath, [program, ...args]).catch(() => {});
  const [name = ""] = readdirSync(results);
  const text = readFileSync(join(results, name, "checks.json"), "utf8");
  return JSON.parse(text) as { id: string; status: string }[];
}

// Without keys, a deployment serves requests for any host name unless `allowed_hosts` names its own.
const settings = { AIRLOCK_API_RATE_LIMIT_ENABLED: "false", AIRLOCK_ALLOWED_HOSTS: "own.example" };

describe.each([
  ["Node", () => startNode(settings)],
  ["workerd", () => startWorkerd(settings, true)],
] as const)("the official conformance scenarios on %s", (_name, start) => {
  let service: Awaited<ReturnType<typeof start>>;
  beforeAll(async () => {
    service = await start();
  });
  afterAll(() => service?.close());

  test.each(Object.entries(scenarios))("%s", async (scenario, impossible) => {
    const checks = await checksOf(scenario, service.url);
    const failed = checks.filter(({ status }) => status === "FAILURE").map(({ id }) => id);
    expect(failed).toEqual(impossible);
    expect(checks.map(({ status }) => status)).toContain("SUCCESS");
  });
});
