import { beforeEach, describe, expect, it } from "vitest";
import type { BuildLogChunk, PollRequest } from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import { JobRefusal } from "../host/policy.ts";
import { PushError } from "../images/transfer.ts";
import { InstallError } from "../sandbox/job.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import { createTestClock, type TestClock } from "../testing/fakes.ts";
import { t, testBuild, testImage, testJob, useTestAgent } from "../testing/test-agent.ts";
import { type BuildLog, createBuildLog, type ImageRequest } from "./build.ts";

describe("build", () => {
  useTestAgent({ slots: 1 });

  const path = (what: string, leaseId: string) => `/builds/${leaseId}/${what}`;

  /** An image builder that begins, and goes on as the test says. */
  function hold() {
    const began = Promise.withResolvers<{
      order: Omit<ImageRequest, "limits">;
      log: (text: string) => void;
    }>();
    const end = Promise.withResolvers<void>();
    t.makeImage = async (order, onLog, signal) => {
      began.resolve({ order, log: (text) => onLog(Buffer.from(text)) });
      await Promise.race([
        end.promise,
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason as Error));
        }),
      ]);
      return { digest: testImage, pythonVersion: "3.13.5" };
    };
    return { began: began.promise, end: () => end.resolve() };
  }

  /** An agent that runs this build until the test ends the build. */
  async function begin(build = testBuild()) {
    const { began, end } = hold();
    const agent = t.run();
    t.api.offerBuild(build);
    return { build, agent, end, ...(await began) };
  }

  /** The next poll that says this. */
  async function pollWhere(matches: (request: PollRequest) => boolean): Promise<PollRequest> {
    for (let n = t.api.count("/poll"); ; n++) {
      const { json } = await t.api.request("/poll", Math.max(n, 1));
      if (matches(json as PollRequest)) return json as PollRequest;
    }
  }

  it("builds what the lease says, and posts the log and then the image", async () => {
    const { build, order, log, end } = await begin();
    expect(order).toMatchObject({
      baseImage: testImage,
      steps: build.steps,
      jobType: "science",
      repository: "airlock-science",
      tags: ["v1.2.3", "latest"],
      owner: { agentId: t.deps.agent.id, agentName: "test", leaseId: build.lease_id },
    });
    log("Collecting left-pad\n");
    end();
    const result = await t.api.request(path("result", build.lease_id));
    expect(result.json).toEqual({
      status: "built",
      manifest_digest: null,
      digest: testImage,
      python_version: "3.13.5",
    });
    const logs = t.api.received.filter(({ path }) => path.endsWith("/logs"));
    const text = logs
      .map(({ json }) => Buffer.from(json["data_base64"] as string, "base64"))
      .join("");
    expect(text).toBe(`Building on python:3.13-slim (${testImage})\nCollecting left-pad\n`);
  });

  it("uses no slot, and runs one build at a time", async () => {
    const { build, end } = await begin();
    const busy = await pollWhere(({ builds }) => builds.length > 0);
    expect(busy).toMatchObject({ builds: [build.lease_id], free_builds: 0, free_slots: 1 });
    t.api.offer(testJob());
    (await t.sandbox(0)).finish();
    await t.api.request("/result");
    end();
    await pollWhere(({ builds, free_builds }) => builds.length === 0 && free_builds === 1);
    expect(t.api.count(path("result", build.lease_id))).toBe(1);
  });

  it("reports the new image as soon as it exists", async () => {
    const { end } = await begin();
    t.api.answer("/result", "silence");
    end();
    await t.api.request("/result");
    expect((await pollWhere(({ images }) => images.length > 0)).images).toEqual([testImage]);
  });

  describe("a build that fails", () => {
    const broken = new EngineError("command_not_found", "no python3", { transient: false });
    const away = new EngineError("unavailable", "ECONNREFUSED");
    const denied = new PushError("x could not be pushed: denied");
    it.each<[string, Error, string, string, failures?: number]>([
      ["of its packages is final", new InstallError("no match"), "result", "dependency_error"],
      [
        "of its configuration is final",
        new JobRefusal("config_error", "x"),
        "result",
        "config_error",
      ],
      ["of the engine is final if it would fail again", broken, "result", "docker_error"],
      ["of the engine is handed back if it may pass", away, "release", "docker_error", 1],
      ["a registry does not take its image is handed back", denied, "release", "docker_error"],
    ])("because %s, with the reason", async (_why, error, posted, type, failures = 0) => {
      if (error === denied) t.shareImage = () => Promise.reject(error);
      else t.makeImage = () => Promise.reject(error);
      t.run();
      const build = testBuild();
      t.api.offerBuild(build);
      expect((await t.api.request(path(posted, build.lease_id))).json).toMatchObject({
        error: { type, message: error.message, ...(error !== denied && { phase: "startup" }) },
      });
      expect(t.deps.engine.breaker().failure_count).toBe(failures);
    });
  });

  it("has the engine checked at once if it failed a build, also one that would fail again", async () => {
    const broken = new EngineError("command_not_found", "no python3", { transient: false });
    t.makeImage = () => Promise.reject((t.health = broken));
    t.run();
    t.api.offerBuild(testBuild());
    const { engine } = await pollWhere(({ engine }) => !engine.available);
    expect(engine.available).toBe(false);
  });

  it("ends a build at its time limit", async () => {
    const { build } = await begin(testBuild({ timeout_s: 20 }));
    await t.clock.sleeping(20_000);
    t.clock.advance(20_000);
    const { json } = await t.api.request(path("result", build.lease_id));
    expect(json).toMatchObject({
      error: { type: "timeout", message: "The build did not end within 20 s (build_timeout)." },
    });
  });

  describe("told to stop", () => {
    it("lets the build end within the grace period", async () => {
      const { agent, end } = await begin();
      agent.stop();
      end();
      await agent.ended;
      expect(t.api.count("/result")).toBe(1);
    });

    it("hands back a build that outlasts the grace period", async () => {
      const { agent } = await begin();
      agent.stop();
      await t.clock.sleeping(10_000);
      t.clock.advance(10_000);
      const { json } = await t.api.request("/release");
      expect(json).toMatchObject({ error: { type: "service_unavailable" } });
      await agent.ended;
    });
  });

  it("drops a build whose lease is lost, and posts nothing for it", async () => {
    const { build } = await begin();
    await pollWhere(({ builds }) => builds.length > 0);
    t.api.lost.push(build.lease_id);
    t.api.wake();
    await pollWhere(({ builds, free_builds }) => builds.length === 0 && free_builds === 1);
    expect(t.api.count("/result") + t.api.count("/release")).toBe(0);
  });

  it("renews the lease of a build", async () => {
    const { build } = await begin();
    await t.clock.sleeping(8000);
    t.clock.advance(8000);
    expect((await t.api.request("/renew")).json).toMatchObject({ builds: [build.lease_id] });
  });
});

describe("build log", () => {
  let clock: TestClock;
  let sent: BuildLogChunk[];
  let log: BuildLog;

  beforeEach(() => {
    clock = createTestClock();
    sent = [];
    log = createBuildLog(clock, async (chunk) => void sent.push(chunk));
  });

  const received = (): string =>
    sent
      .map(({ offset, data_base64 }, n) => {
        const before = sent.slice(0, n).map((chunk) => Buffer.from(chunk.data_base64, "base64"));
        expect(offset).toBe(Buffer.concat(before).length);
        return Buffer.from(data_base64, "base64").toString();
      })
      .join("");

  it("sends new output each second, and the rest at the end", async () => {
    log.add(Buffer.from("one "));
    log.add(Buffer.from("two "));
    await clock.sleeping(1000);
    expect(sent).toEqual([]);
    clock.advance(1000);
    await clock.sleeping(1000);
    expect(received()).toBe("one two ");
    log.add(Buffer.from("three"));
    await log.close();
    expect(received()).toBe("one two three");
  });

  it("tells the step that begins with the next piece, or at the end without one", async () => {
    log.add(Buffer.from("one "));
    log.begin(1);
    await clock.sleeping(1000);
    clock.advance(1000);
    await clock.sleeping(1000);
    log.begin(2);
    await log.close();
    expect(sent.map(({ step }) => step)).toEqual([1, 2]);
    expect(received()).toBe("one ");
  });

  it("leaves out the middle of a log that is too long, and stays within the limit", async () => {
    const line = `${"x".repeat(99)}\n`;
    for (let n = 0; n < 30_000; n++) log.add(Buffer.from(line));
    log.add(Buffer.from("the end"));
    await log.close();
    const text = received();
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(limits.buildLogMaxBytes);
    expect(text).toMatch(/^x{99}\n/);
    expect(text).toMatch(/\n… \d+ bytes left out …\n/);
    expect(text.endsWith("x\nthe end")).toBe(true);
  });

  it("reports at its close that the log could not be sent", async () => {
    const failing = createBuildLog(clock, () => Promise.reject(new Error("gone")));
    failing.add(Buffer.from("x"));
    await expect(failing.close()).rejects.toThrow("gone");
  });
});
