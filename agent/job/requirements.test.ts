import { configure, reset } from "@logtape/logtape";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { ResultReport } from "../../shared/wire/agent/lease.ts";
import { abortable } from "../waiting/abortable.ts";
import { InstallError } from "../sandbox/package-request.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { createFakeSandbox } from "../testing/fake-sandbox.ts";
import { createTestAgent, type TestAgent } from "../testing/test-agent.ts";

let t: TestAgent;
beforeEach(async () => {
  t = await createTestAgent();
  t.assumeGoodEngine();
  Object.assign(t.deps, { requirements: { allowed: true, cache: null } });
});
afterEach(() => t[Symbol.asyncDispose]());

const requirements = ["airlock-probe"];
const result = async () => (await t.api.request("/result")).json as ResultReport;

/** Has every container install as it is told here. */
function installWith(install: Sandbox["install"]): void {
  t.start = () => Promise.resolve({ ...createFakeSandbox(), install });
}

it("the start-up time limit covers container and packages together", async () => {
  const installing = Promise.withResolvers<void>();
  installWith((_packages, signal) => {
    installing.resolve();
    return abortable(new Promise(() => {}), signal);
  });
  const { ended } = t.begin({ requirements, startup_timeout_s: 10 });
  await installing.promise;
  t.clock.advance(10_000);
  await ended;
  expect(await result()).toMatchObject({
    status: "timeout",
    exit_code: null,
    error: { type: "startup_timeout", phase: "startup" },
    timing: { startup_ms: 10_000, dep_install_ms: 10_000, phase_at_exit: "startup" },
  });
});

it("packages that cannot be installed fail the job; a lost container hands it back", async () => {
  installWith(() => Promise.reject(new InstallError("ERROR: No matching distribution")));
  await t.begin({ requirements }).ended;
  expect((await result()).error).toEqual({
    type: "dependency_error",
    message: "ERROR: No matching distribution",
    phase: "startup",
  });
  installWith(() => Promise.reject(new EngineError("other", "gone")));
  await t.begin({ requirements }).ended;
  expect((await t.api.request("/release")).json).toMatchObject({ error: { phase: "startup" } });
});

it("the log has one line of pip's output, the last one", async () => {
  const lines: string[] = [];
  await configure({
    reset: true,
    sinks: { lines: ({ message }) => void lines.push(message.join("")) },
    loggers: [{ category: [], lowestLevel: "warning", sinks: ["lines"] }],
  });
  const words = "ERROR: Could not find a version\nERROR: No matching distribution found for a";
  installWith(() => Promise.reject(new InstallError(words)));
  await t.begin({ requirements }).ended;
  await reset();
  expect((await result()).error?.message).toBe(words);
  expect(lines).toEqual(["the job is not run: ERROR: No matching distribution found for a"]);
});

it("a package folder that cannot be read is reported to the operator", async () => {
  Object.assign(t.deps, { pip: { ...t.deps.pip, findLinks: "/nonexistent" } });
  installWith(() => Promise.resolve());
  await t.begin({ requirements }).ended;
  const { error } = await result();
  expect(error?.type).toBe("config_error");
  expect(error?.message).toContain("pip_find_links of the agent cannot be read: /nonexistent");
});
