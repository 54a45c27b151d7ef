import { expect, test } from "vitest";
import { ensureScienceImage } from "../../scripts/setup/images/science-image.ts";
import { backend, sandboxRuntime as runtime } from "./testing/backend.ts";
import { testEngine } from "./testing/engine.ts";
import { rawEngine } from "./testing/raw-engine.ts";
import { runCode } from "./testing/run-code.ts";

const image = await ensureScienceImage(rawEngine);

const preload = ["numpy", "random", "ssl", "tempfile", "uuid"];
const code = `
import os, random, ssl, tempfile, uuid
import numpy as np
print(hash("text"), id(object()), random.random(), os.urandom(8), ssl.RAND_bytes(8), uuid.uuid4(), tempfile.mktemp(),
    np.random.rand(), np.random.default_rng().random(), sep="\\n")`;

test(`under ${runtime} hash seeds, addresses and random numbers differ between two warm containers`, async () => {
  const { engine } = await testEngine();
  const spec = { runtime, preload, memoryBytes: 512 * 1024 ** 2 };
  const runs = [0, 1].map(() => runCode({ engine, image }, code, { spec }));
  const lines = (await Promise.all(runs)).flatMap(({ out }) => out.trim().split("\n"));
  expect(lines).toHaveLength(18);
  // Forks of one zygote share its hash seed and the layout of its memory (SECURITY.md).
  const shared = backend === "zygote" ? 2 : 0;
  expect(new Set(lines).size).toBe(18 - shared);
});
