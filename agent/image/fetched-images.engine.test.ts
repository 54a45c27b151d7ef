import { randomUUID } from "node:crypto";
import { text } from "node:stream/consumers";
import { Readable } from "node:stream";
import { getLogger } from "@logtape/logtape";
import { afterEach, beforeEach, expect, it } from "vitest";
import { createFetchedImages, type FetchedImages } from "./fetched-images.ts";
import type { Engine } from "../engine/engine.ts";
import { tarEnd, tarHeader, tarPadding } from "./tar.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { rawEngine, removeImages } from "../sandbox/testing/raw-engine.ts";
import { createTestClock, type TestClock } from "../testing/test-clock.ts";

const never = new AbortController().signal;
const sizeBytes = 100_000;

let engine: Engine;
let clock: TestClock;
let repository: string;
let images: string[];

beforeEach(async () => {
  ({ engine } = await testEngine());
  clock = createTestClock();
  repository = `airlock-test-${randomUUID()}`;
  images = [];
});
afterEach(() => removeImages(...images));

/** An image as one that was fetched: under one name, that of its number. */
async function make(): Promise<string> {
  const bytes = Buffer.alloc(sizeBytes, randomUUID());
  const tar = [tarHeader("file", sizeBytes), bytes, tarPadding(sizeBytes), tarEnd];
  const tag = String(images.length);
  const said = await rawEngine.importImage(Readable.from(tar), { repo: repository, tag });
  const id = /sha256:[0-9a-f]{64}/.exec(await text(said as Readable))![0];
  images.push(id);
  return id;
}

/** Room for so many images. */
function bounded(count: number): FetchedImages {
  const maxBytes = count * sizeBytes + 10_000;
  const log = getLogger(["airlock", "agent"]);
  return createFetchedImages({ imageCalls: engine, maxBytes, clock, log, repository });
}

const left = async (): Promise<string[]> =>
  (await engine.imagesNamed(repository, never)).map(({ id }) => id).sort();

function use(fetched: FetchedImages, ...used: string[]): void {
  for (const image of used) {
    fetched.used(image);
    clock.advance(1000);
  }
}

it("leaves images within the limit alone", async () => {
  const all = [await make(), await make()];
  expect(await bounded(2).prune([], never)).toBe(2 * sizeBytes);
  expect(await left()).toEqual(all.sort());
});

it("removes the least recently used first, and no more than necessary", async () => {
  const [a, b, c, unused] = [await make(), await make(), await make(), await make()];
  const fetched = bounded(2);
  use(fetched, b, a, c);
  clock.advance(3600_000);
  expect(await fetched.prune([], never)).toBe(2 * sizeBytes);
  expect(await left()).toEqual([a, c].sort());
  expect(await engine.imageId(unused, never)).toBeNull();
});

it("removes neither images that a job type needs nor one that a job has just asked for", async () => {
  const [needed, asked] = [await make(), await make()];
  const fetched = bounded(0);
  use(fetched, asked);
  expect(await fetched.prune([needed], never)).toBe(2 * sizeBytes);
  clock.advance(3600_000);
  expect(await fetched.prune([needed], never)).toBe(sizeBytes);
  expect(await left()).toEqual([needed]);
});

it("skips an image that a container uses", async () => {
  const [held, other] = [await make(), await make()];
  const container = await rawEngine.createContainer({ Image: held, Cmd: ["/none"] });
  try {
    const fetched = bounded(1);
    use(fetched, held, other);
    clock.advance(3600_000);
    expect(await fetched.prune([], never)).toBe(sizeBytes);
    expect(await left()).toEqual([held]);
  } finally {
    await container.remove();
  }
});

it("only removes the name of an image that has another one", async () => {
  const image = await make();
  await engine.tag(image, repository.replace("test", "test-own"), "1", never);
  await bounded(0).prune([], never);
  expect(await left()).toEqual([]);
  expect(await engine.imageId(image, never)).toBe(image);
});
