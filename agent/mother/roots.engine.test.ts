import { randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import { afterAll, beforeAll, expect, test } from "vitest";
import { tarEnd, tarHeader } from "../image/tar.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { removeVolume } from "../sandbox/testing/raw-engine.ts";
import { createRoots } from "./roots.ts";
import { createVolumes } from "./unpacker.ts";

const signal = AbortSignal.timeout(120_000);
const { engine, image } = await testEngine();
const agentName = `roots-${randomUUID()}`;
const spec = {
  roots: agentName,
  sets: `${agentName}-sets`,
  agentName,
  agentId: randomUUID(),
  memoryBytes: null,
  pids: 100,
};
beforeAll(() => createVolumes({ engine, spec }, signal));
afterAll(() => Promise.all([spec.roots, spec.sets].map(removeVolume)));

/** Unpacks an image of which the engine sends these bytes. */
function unpack(...sent: Buffer[]): Promise<string> {
  const exportFiles = async () => Readable.from(sent);
  const motherImage = async () => image;
  const ids = [0x7000_0000, 65_536] as const;
  const deps = { engine: { ...engine, exportFiles }, spec, motherImage, ids };
  return createRoots({ ...deps, held: new Set() }).prepare(image, signal);
}

test("an image that breaks off between two of its files is not taken for a whole one", async () => {
  const [a, b] = ["a", "b"].map((name) => tarHeader(name, 0)) as [Buffer, Buffer];
  await expect(unpack(a)).rejects.toThrow("ended early");
  await expect(unpack(a, b.subarray(0, 100))).rejects.toThrow("ended early");
  await unpack(a, b, tarEnd);
});
