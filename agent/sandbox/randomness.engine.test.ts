import { afterAll, expect, test } from "vitest";
import { ensureScienceImage } from "../../scripts/setup/images/science-image.ts";
import { backend, sandboxRuntime as runtime } from "./testing/backend.ts";
import { testEngine } from "./testing/engine.ts";
import { imageWithModules, rawEngine, removeImages } from "./testing/raw-engine.ts";
import { runCode } from "./testing/run-code.ts";

const science = await ensureScienceImage(rawEngine);
const image = await imageWithModules(science, {
  // Generators that a module makes during its import, and those that are the same after each import.
  generators: `
import random, numpy as np
rng, legacy, sequence = np.random.default_rng(), np.random.RandomState(), np.random.SeedSequence()
child, other = np.random.default_rng(sequence.spawn(1)[0]), np.random.Generator(np.random.MT19937())
legacy.standard_normal()
class Client: random = random.Random()
given = [np.random.default_rng(5), np.random.RandomState(5), np.random.default_rng(2**120), random.Random(5)]`,
});
afterAll(() => removeImages(image));

const preload = ["numpy", "random", "ssl", "tempfile", "uuid", "generators"];
const code = `
import os, random, ssl, tempfile, uuid
import numpy as np
print(hash("text"), id(object()), random.random(), os.urandom(8), ssl.RAND_bytes(8), uuid.uuid4(), tempfile.mktemp(),
    np.random.rand(), np.random.default_rng().random(), sep="\\n")
import generators as g
print(*[each.random() for each in (g.rng, g.legacy, g.child, g.other, g.Client.random)], g.legacy.standard_normal(), sep="\\n")
print(g.sequence.entropy, g.sequence.spawn(1)[0].generate_state(1), np.random.default_rng(g.sequence).random(), sep="\\n")
print(*[each.random() for each in g.given])`;

test(`under ${runtime} hash seeds, addresses and random numbers differ between two warm containers`, async () => {
  const place = await testEngine();
  const spec = { runtime, image, preload, memoryBytes: 512 * 1024 ** 2 };
  const runs = [0, 1].map(() => runCode(place, code, { spec }));
  const lines = (await Promise.all(runs)).flatMap(({ out }) => out.trim().split("\n"));
  expect(lines).toHaveLength(38);
  const given = "0.8050029237453802 0.22199317108973948 0.2831303208031627 0.6229016948897019";
  expect(lines.filter((line) => line === given)).toHaveLength(2);
  // Forks of one zygote share its hash seed and the layout of its memory (SECURITY.md).
  const shared = backend === "zygote" ? 2 : 0;
  expect(new Set(lines).size).toBe(37 - shared);
});
