import { getLogger } from "@logtape/logtape";
import { beforeEach, expect, it } from "vitest";
import { ApiError } from "../api/errors.ts";
import { createChangeSignal } from "../waiting/change-signal.ts";
import { createImageFetcher, type FetcherDeps, type ImageFetcher } from "./fetch-images.ts";
import { createInventory } from "./inventory.ts";
import { EngineError } from "../sandbox/errors.ts";
import { createTestClock, type TestClock } from "../testing/test-clock.ts";

const image = `sha256:${"1".repeat(64)}`;
const registry_ref = `registry.example/airlock-t@sha256:${"2".repeat(64)}`;
const MiB = 1024 * 1024;

let clock: TestClock;
let told: () => Promise<void>;
let calls: string[];
/** What the engine has, by name. */
let ids: Record<string, string>;
let labels: Record<string, string>;
let pull: () => Promise<void>;
let architecture: string;
let needed: number;
let fetcher: ImageFetcher;

beforeEach(() => {
  clock = createTestClock();
  calls = [];
  ids = {};
  labels = {};
  architecture = "amd64";
  needed = 0;
  pull = async () => void (ids[registry_ref] = image);
  const changes = createChangeSignal();
  const imageId = (name: string) => Promise.resolve(ids[name] ?? null);
  const inventory = createInventory(
    { imageId, labelledImageId: () => Promise.resolve(null) },
    changes,
  );
  const deps: FetcherDeps = {
    agent: {
      id: "a",
      name: "a",
      version: "1",
      labels: { zone: "b" },
      accepts: { job_types: null, builds: true },
    },
    admission: { admitImage: () => {} },
    client: {
      imageSource: (asked) => {
        calls.push("source");
        return Promise.resolve({ image: asked, job_type: "t", labels, registry_ref });
      },
      imageArchive: () => Promise.reject(new ApiError("rejected", "not here")),
    },
    imageCalls: {
      architecture: () => Promise.resolve("amd64"),
      imageArchitecture: () => Promise.resolve(architecture),
      imageId,
      load: () => Promise.resolve(),
      pull: () => {
        calls.push("pull");
        return pull();
      },
      removeName: (name) => {
        delete ids[name];
        return Promise.resolve();
      },
      tag: () => Promise.resolve(),
    },
    fetched: { prune: () => Promise.resolve(needed) },
    unpack: async (asked) => {
      expect([asked, inventory.present()]).toEqual([image, []]);
      calls.push("unpack");
    },
    registry: { name: undefined, auth: undefined },
    maxImageBytes: MiB,
    maxFetchedBytes: MiB,
    inventory,
    changes,
    clock,
    log: getLogger(["airlock", "agent"]),
  };
  fetcher = createImageFetcher(deps, new AbortController().signal);
  told = () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    changes.subscribe(resolve);
    return promise;
  };
});

/** Wants the image, until something of it is told. */
async function want(): Promise<void> {
  const news = told();
  fetcher.want([image]);
  await news;
}

it("reports why an image is missing until it is there, and tries again after longer and longer pauses", async () => {
  pull = () => Promise.reject(new EngineError("other", "no route to host"));
  await want();
  expect(fetcher.missing()).toEqual([{ image, reason: "no route to host" }]);
  fetcher.want([image]);
  expect(calls).toEqual(["source", "pull"]);
  clock.advance(2000);
  await want();
  expect(calls).toEqual(["source", "pull", "source", "pull"]);
  pull = async () => void (ids[registry_ref] = image);
  clock.advance(4000);
  await want();
  expect(fetcher.missing()).toEqual([]);
  expect(calls.at(-1)).toBe("unpack");
});

it("does not ask again for an image of another architecture", async () => {
  architecture = "arm64";
  await want();
  expect(fetcher.missing()).toEqual([{ image, reason: "it is for arm64, and this host is amd64" }]);
  expect(ids).toEqual({});
  clock.advance(24 * 3600_000);
  fetcher.want([image]);
  expect(calls).toEqual(["source", "pull"]);
});

it("transfers nothing if images in use fill the limit", async () => {
  needed = MiB;
  await want();
  expect(fetcher.missing()).toEqual([
    { image, reason: expect.stringContaining("fetched_images_bytes is 1048576") as string },
  ]);
  expect(calls).toEqual(["source"]);
});

it("reports nothing about an image for other labels, or one that is no longer wanted", async () => {
  pull = () => Promise.reject(new EngineError("other", "no route to host"));
  await want();
  fetcher.want([]);
  expect(fetcher.missing()).toEqual([]);
  labels = { zone: "c" };
  fetcher.want([image]);
  await expect.poll(() => calls.length, { timeout: 30_000 }).toBe(3);
  expect(calls.at(-1)).toBe("source");
  expect(fetcher.missing()).toEqual([]);
});
