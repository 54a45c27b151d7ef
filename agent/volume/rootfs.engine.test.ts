import { randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { tarEnd, tarHeader } from "../image/tar.ts";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import {
  containersOf,
  deriveImage,
  removeImages,
  removeVolume,
} from "../sandbox/testing/raw-engine.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { createRootfsStore } from "./rootfs.ts";
import { createVolumes } from "./unpacker.ts";

const signal = AbortSignal.timeout(120_000);
const { engine, image } = await testEngine();
const agentName = `rootfs-${randomUUID()}`;
const spec = {
  rootfs: agentName,
  bundles: `${agentName}-bundles`,
  agentName,
  agentId: randomUUID(),
  slots: 1,
  memoryBytes: null,
  pids: 100,
};
const [empty, early] = [`${agentName}-empty`, `${agentName}-early`];
beforeAll(() => createVolumes({ engine, spec }, signal));
afterAll(() => Promise.all([spec.rootfs, spec.bundles, empty, early].map(removeVolume)));

/** Unpacks an image of which the engine sends these bytes. */
function unpack(...sent: Buffer[]): Promise<string> {
  const exportFiles = async () => Readable.from(sent);
  const motherImage = async () => image;
  const ids = [0x7000_0000, 65_536] as const;
  const deps = { engine: { ...engine, exportFiles }, spec, motherImage, ids };
  return createRootfsStore({ ...deps, ownLabels: new Set() }).prepare(image, signal);
}

test("an image that breaks off between two of its files is not taken for a whole one", async () => {
  const [a, b] = ["a", "b"].map((name) => tarHeader(name, 0)) as [Buffer, Buffer];
  await expect(unpack(a)).rejects.toThrow("ended early");
  await expect(unpack(a, b.subarray(0, 100))).rejects.toThrow("ended early");
  await unpack(a, b, tarEnd);
});

test("an image that is made before it is known whether jobs are forked is unpacked as soon as it is", async () => {
  const labels = { agentId: randomUUID(), agentName, leaseId: null };
  const made = await deriveImage(image, `echo ${agentName} > /mark`);
  let exported = 0;
  const exportFiles: typeof engine.exportFiles = (...asked) => {
    exported += 1;
    return engine.exportFiles(...asked);
  };
  const mother = { ...labels, rootfs: early, bundles: spec.bundles };
  const forks = startForks({ engine: { ...engine, exportFiles }, image }, { mother });
  try {
    await forks.unpack(made, signal);
    expect(forks.problem()).toMatch("has not ended yet");
    // The image of the probe is the other one.
    await vi.waitFor(() => expect(exported).toBe(2), 60_000);
  } finally {
    await forks.close();
    await removeImages(made);
  }
});

test("what is being unpacked when the agent stops leaves no container", async () => {
  const labels = { agentId: randomUUID(), agentName, leaseId: null };
  const sends = Promise.withResolvers<void>();
  const exportFiles = async (): Promise<Readable> => {
    sends.resolve();
    return new Readable({ read() {} });
  };
  const mother = { ...labels, rootfs: empty, bundles: spec.bundles };
  const forks = startForks({ engine: { ...engine, exportFiles }, image }, { mother });
  const opened = forks.open(specWith({ image, labels }), signal);
  opened.catch(() => {});
  await sends.promise;
  await forks.close();
  await expect(opened).rejects.toThrow("the agent has stopped");
  expect(await containersOf(agentName)).toEqual([]);
});

test("a built image is unpacked before its first job, which then does not wait for that", async () => {
  const exported: string[] = [];
  const counted: typeof engine = {
    ...engine,
    exportFiles: (id, limit) => {
      exported.push(id);
      return engine.exportFiles(id, limit);
    },
  };
  const rootfs = `${agentName}-built`;
  const forks = startForks({ engine: counted, image }, { mother: { rootfs, agentName } });
  try {
    await forks.probed(signal);
    const built = await deriveImage(image, "echo built > /built");
    await forks.unpack(built, signal);
    const before = exported.length;
    const labels = { agentId: spec.agentId, agentName, leaseId: null };
    await (await forks.open(specWith({ image: built, labels }), signal)).close();
    expect(exported).toHaveLength(before);
    await removeImages(built);
  } finally {
    await forks.close();
    await removeVolume(rootfs);
  }
});
