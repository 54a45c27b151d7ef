import { randomUUID } from "node:crypto";
import { afterAll, expect, test } from "vitest";
import { testEngine } from "../sandbox/testing/engine.ts";
import { rawEngine, removeVolume } from "../sandbox/testing/raw-engine.ts";
import { createVolumeReaper, bundlesVolume } from "./volumes.ts";

const signal = AbortSignal.timeout(120_000);
const { engine, image } = await testEngine();
const [gone, busy, own, odd] = ["gone", "busy", "own", "odd"].map(
  (word) => `volumes-${word}-${randomUUID()}`,
) as [string, string, string, string];
/** Volumes that are not a mother's: one has another name, one has no label. */
const [otherName, unlabelled] = [`volumes-${randomUUID()}`, bundlesVolume(odd)];
const all = [gone, busy, own].map(bundlesVolume).concat(otherName, unlabelled);
afterAll(() => Promise.all(all.map(removeVolume)));

async function left(): Promise<string[]> {
  const { Volumes } = await rawEngine.listVolumes();
  return all.filter((name) => Volumes.some(({ Name }) => Name === name));
}

test("only volumes of other agents that no container has used for an hour are removed", async () => {
  for (const name of [gone, busy, own]) {
    await engine.createVolume(bundlesVolume(name), name, signal);
  }
  await engine.createVolume(otherName, odd, signal);
  await rawEngine.createVolume({ Name: unlabelled });
  const holder = await rawEngine.createContainer({
    Image: image,
    HostConfig: { Binds: [`${bundlesVolume(busy)}:/bundles`] },
  });
  // Other tests have volumes on this engine, too.
  const unusedVolumes = async () =>
    (await engine.unusedVolumes(signal)).filter(({ name }) => all.includes(name));
  let nowMs = 0;
  const reap = createVolumeReaper({ ...engine, unusedVolumes }, [bundlesVolume(own)], () => nowMs);
  const others = all.slice(1);
  try {
    expect(await reap(signal)).toBe(0);
    nowMs = 3600_000 - 1;
    expect(await reap(signal)).toBe(0);
    expect(await left()).toEqual(all);
    nowMs += 1;
    expect(await reap(signal)).toBe(1);
    expect(await left()).toEqual(others);
    // The hour starts again after a container has used the volume.
    await holder.remove();
    expect(await reap(signal)).toBe(0);
    nowMs += 3600_000;
    expect(await reap(signal)).toBe(1);
    expect(await left()).toEqual(others.slice(1));
  } finally {
    await holder.remove({ force: true }).catch(() => {});
  }
});
