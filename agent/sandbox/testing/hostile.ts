import { randomUUID } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { backend, sandboxRuntime } from "./backend.ts";
import { testEngine } from "./engine.ts";
import { type Run, runCode, type Settings } from "./run-code.ts";
import { type HostWatch, watchHost } from "./watch-host.ts";

/** Where hostile code runs. */
export interface Scene {
  readonly runtime: string;
  readonly isGvisor: boolean;
  /** Label of all containers that the invariant checks. */
  readonly agentName: string;
  /** Path of a host file that no job may read or change; set while a test runs. */
  readonly canaryPath: () => string;
  readonly place: () => Awaited<ReturnType<typeof testEngine>>;
  /** Runs code in its own container. */
  readonly run: (code: string, settings?: Settings) => Promise<Run>;
}

const look = `
import glob, os
print("next", glob.glob("/tmp/*") + glob.glob("/dev/shm/*") + glob.glob("/output/*") + glob.glob("/dev/mqueue/*"))`;

/**
 * Cases of hostile code, under runc in the engine tier and under gVisor in the lab. Each test ends with the invariant:
 * host and agent are as before. After each fork and after the last container, a harmless job runs well and finds
 * nothing. After any other container, the next case does the same.
 */
export function hostileCases(cases: (scene: Scene) => void): void {
  const runtime = sandboxRuntime;
  describe(`under ${runtime}`, () => {
    const agentName = `hostile-${randomUUID()}`;
    let place: Awaited<ReturnType<typeof testEngine>>;
    let watch: HostWatch;

    async function run(code: string, settings: Settings = {}): Promise<Run> {
      const spec = { runtime, ...settings.spec };
      const result = await runCode(place, code, { agentName, ...settings, spec });
      const { out, err, files, report } = result;
      const told = JSON.stringify([out, err, files, report.result]);
      expect(told).not.toContain(watch.canary.secret);
      return result;
    }

    async function runNext(): Promise<void> {
      const { end, out, err } = await run(look);
      expect({ end, out, err }).toEqual({ end: "succeeded - 0", out: "next []\n", err: "" });
    }

    beforeAll(async () => {
      place = await testEngine();
      await runCode(place, look, { agentName, spec: { runtime } });
      watch = await watchHost(agentName);
    });
    afterEach(async () => {
      if (backend === "zygote") await runNext();
      await watch.holds();
    });
    afterAll(async () => {
      try {
        if (backend !== "zygote") await runNext();
        await watch.holds();
      } finally {
        watch?.close();
      }
    });

    const isGvisor = runtime === "runsc";
    cases({
      runtime,
      isGvisor,
      agentName,
      canaryPath: () => watch.canary.path,
      place: () => place,
      run,
    });
  });
}
