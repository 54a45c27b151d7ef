import { expect, test } from "vitest";
import { EngineError } from "../sandbox/errors.ts";
import { createVolumeReaper, bundlesVolume } from "./volumes.ts";

test("a volume that cannot be removed does not hold up the others, and is tried again an hour later", async () => {
  const agents = ["stuck", "gone"];
  const tried: string[] = [];
  let nowMs = 0;
  const engine = {
    unusedVolumes: async () =>
      agents.map((agentName) => ({ name: bundlesVolume(agentName), agentName })),
    async removeVolume(name: string) {
      tried.push(name);
      if (name === bundlesVolume("stuck")) throw new EngineError("other", "device busy");
      agents.pop();
    },
  };
  const { signal } = new AbortController();
  const reap = createVolumeReaper(engine, [], () => nowMs);
  await reap(signal);
  nowMs = 3600_000;
  await expect(reap(signal)).rejects.toThrow("busy");
  expect(await reap(signal)).toBe(1);
  nowMs += 3600_000 - 1;
  expect(await reap(signal)).toBe(0);
  expect(tried).toEqual(["stuck", "gone"].map(bundlesVolume));
  nowMs += 1;
  await expect(reap(signal)).rejects.toThrow("busy");
});
