import { join } from "node:path";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { getLogger } from "@logtape/logtape";
import { beforeEach, describe, expect, it, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { LeasedBuild } from "../../shared/wire/leases.ts";
import { ApiError } from "../client/http.ts";
import { openSpoolDir } from "../host/files.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import { createTestClock, type TestClock } from "../testing/fakes.ts";
import { testBuild, testImage } from "../testing/test-agent.ts";
import { createChangeSignal } from "../waiting.ts";
import { checkLayer, checksum, packImage, tarEnd, tarHeader, tarPadding } from "./archive.ts";
import { createImages, createInventory, type ImageStore, type Inventory } from "./images.ts";
import {
  createImageFetcher,
  type FetcherDeps,
  PushError,
  type ShareDeps,
  shareImage,
} from "./transfer.ts";

const signal = new AbortController().signal;

describe("images", () => {
  const missing = new EngineError("other", "no route to registry", { transient: true });

  let calls: string[];
  let ids: Record<string, string>;
  let pull: ImageStore["pull"];

  beforeEach(() => {
    calls = [];
    ids = {};
    pull = () => Promise.reject(missing);
  });

  function images() {
    return createImages(
      {
        imageId: async (reference) => {
          calls.push(`inspect ${reference}`);
          return ids[reference] ?? null;
        },
        imageNames: async (reference) => [`what is called ${reference}`],
        labelledImageId: async (name, value) => {
          calls.push(`${name}=${value}`);
          return ids[`for ${value}`] ?? null;
        },
        pull: async (reference, signal) => {
          calls.push(`pull ${reference}`);
          await pull(reference, signal);
        },
      },
      signal,
    );
  }

  it("uses the image itself if it is there, and looks once", async () => {
    ids["python:3"] = "sha256:1";
    const { resolve } = images();
    expect(await Promise.all([resolve("python:3", signal), resolve("python:3", signal)])).toEqual([
      "sha256:1",
      "sha256:1",
    ]);
    expect(await resolve("python:3", signal)).toBe("sha256:1");
    expect(calls).toEqual(["inspect python:3"]);
  });

  it("else uses the image that stands in for it", async () => {
    ids["for python:3"] = "sha256:2";
    expect(await images().resolve("python:3", signal)).toBe("sha256:2");
    expect(calls).toEqual(["inspect python:3", "io.airlock.stands-in-for=python:3"]);
  });

  it("else pulls it", async () => {
    pull = async () => {
      ids["python:3"] = "sha256:3";
    };
    expect(await images().resolve("python:3", signal)).toBe("sha256:3");
    expect(calls.at(-2)).toBe("pull python:3");
  });

  it("else says so, and looks again the next time", async () => {
    const { resolve } = images();
    await expect(resolve("python:3", signal)).rejects.toMatchObject({
      type: "docker_error",
      message:
        "Image python:3 is not on the agent's host and cannot be pulled: no route to registry",
    });
    ids["python:3"] = "sha256:1";
    expect(await resolve("python:3", signal)).toBe("sha256:1");
  });

  it("passes on a failure of the engine", async () => {
    const gone = new EngineError("unavailable", "ECONNREFUSED", { transient: true });
    const { resolve } = createImages(
      {
        imageId: () => Promise.reject(gone),
        imageNames: () => Promise.reject(gone),
        labelledImageId: () => Promise.reject(gone),
        pull: () => Promise.reject(gone),
      },
      signal,
    );
    await expect(resolve("python:3", signal)).rejects.toBe(gone);
  });

  it("looks up an image again after forgetting it", async () => {
    ids["python:3"] = "sha256:1";
    const { resolve, forget } = images();
    await resolve("python:3", signal);
    ids["python:3"] = "sha256:9";
    forget("python:3");
    expect(await resolve("python:3", signal)).toBe("sha256:9");
  });

  it("lets one job give up a pull while another waits for it", async () => {
    const pulled = Promise.withResolvers<void>();
    pull = () => pulled.promise;
    const { resolve } = images();
    const hasty = new AbortController();
    const first = resolve("python:3", hasty.signal);
    const second = resolve("python:3", signal);
    hasty.abort(new Error("too late"));
    await expect(first).rejects.toThrow("too late");
    ids["python:3"] = "sha256:3";
    pulled.resolve();
    expect(await second).toBe("sha256:3");
  });

  it.each(["sha256:ab12", "ab12", "AB12", "d"])(
    "%s may be an id: the engine knows its names",
    async (id) => {
      expect(await images().namesOf(id, signal)).toEqual([`what is called ${id}`]);
    },
  );

  it.each(["python", "ab12:latest", "library/ab12"])("%s is its own name", async (reference) => {
    expect(await images().namesOf(reference, signal)).toEqual([reference]);
  });
});

describe("inventory", () => {
  /** Images of the engine, as `imageId` and `labelledImageId` find them. */
  let images: string[];
  let lookups: number;
  let told: number;
  let inventory: Inventory;

  beforeEach(() => {
    images = ["python:3", "standing in for python:4"];
    lookups = 0;
    told = 0;
    const changes = createChangeSignal();
    changes.subscribe(() => told++);
    const find = (name: string): Promise<string | null> => {
      lookups += 1;
      return Promise.resolve(images.includes(name) ? "sha256:1" : null);
    };
    const store = {
      imageId: find,
      labelledImageId: (_label: string, name: string) => find(`standing in for ${name}`),
    };
    inventory = createInventory(store, changes);
  });

  it("lists which of the requested images are there, including stand-ins", async () => {
    expect(await inventory.want(["python:3", "python:4", "python:5"], signal)).toBe(false);
    expect(inventory.present()).toEqual(["python:3", "python:4"]);
    expect(told).toBe(1);
  });

  it("looks only for images that are new to it", async () => {
    await inventory.want(["python:3"], signal);
    lookups = 0;
    expect(await inventory.want(["python:3"], signal)).toBe(true);
    expect(lookups).toBe(0);
    expect(await inventory.want(["python:3", "python:4"], signal)).toBe(false);
    expect(inventory.present()).toEqual(["python:3", "python:4"]);
  });

  it("notices when it refreshes that an image is gone or new, and reports it once", async () => {
    await inventory.want(["python:3", "python:5"], signal);
    told = 0;
    await inventory.refresh(signal);
    expect(told).toBe(0);
    images = ["python:5"];
    await inventory.refresh(signal);
    expect(inventory.present()).toEqual(["python:5"]);
    expect(told).toBe(1);
  });

  it("has a newly built image at once", async () => {
    await inventory.want(["python:3"], signal);
    inventory.add("sha256:2");
    expect(inventory.present()).toEqual(["python:3", "sha256:2"]);
  });

  it("keeps an image that was made while the engine was asked", async () => {
    await inventory.want(["python:3", "sha256:2"], signal);
    const refreshed = inventory.refresh(signal);
    inventory.add("sha256:2");
    inventory.add("sha256:3");
    await refreshed;
    expect(inventory.present()).toEqual(["python:3", "sha256:2", "sha256:3"]);
    await inventory.refresh(signal);
    expect(inventory.present()).toEqual(["python:3"]);
  });

  it("keeps reporting an image that it built until it is gone", async () => {
    images = ["python:3", "sha256:2"];
    inventory.add("sha256:2");
    await inventory.want(["python:3"], signal);
    expect(inventory.present()).toEqual(["python:3", "sha256:2"]);
    images = ["python:3"];
    await inventory.refresh(signal);
    expect(inventory.present()).toEqual(["python:3"]);
  });

  it("keeps what it knows while the engine does not answer, and throws when it refreshes", async () => {
    const gone = new EngineError("unavailable", "ECONNREFUSED");
    const store = {
      imageId: () => Promise.reject(gone),
      labelledImageId: () => Promise.reject(gone),
    };
    const { want, refresh, present } = createInventory(store, createChangeSignal());
    expect(await want(["python:3"], signal)).toBe(false);
    expect(present()).toEqual([]);
    await expect(refresh(signal)).rejects.toBe(gone);
  });
});

/** A line of text, as bzip2 and as xz write it. */
const bzip2 = Buffer.from(
  "425a683931415926535927a1add4000004d1800010400037549eb02000314d32313131089ea1b441a1a42295dc2619f6067d3d729e1dd4f11b80b17bca91f17724538509027a1add40",
  "hex",
);
const xz = Buffer.from(
  "fd377a585a000004e6d6b4460200210116000000742fe5a301002761206c61796572206f66207a65726f7320776f756c64206265206a7573742061732073686f72740a00a6385f7d39a94f1800014028d4524ae51fb6f37d010000000004595a",
  "hex",
);

/** One entry of a tar; `told` is the size in its header where that is not the one of its bytes. */
function entry(name: string, bytes: Buffer | string, type = "0", told?: number): Buffer {
  const content = Buffer.from(bytes);
  const header = tarHeader(name, told ?? content.length);
  header.write(type, 156, "latin1");
  header.write(`${checksum(header).toString(8).padStart(6, "0")}\0 `, 148);
  return Buffer.concat([header, content, tarPadding(content.length)]);
}

const tar = (...entries: Buffer[]): Buffer => Buffer.concat([...entries, tarEnd]);

function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const length = [2, 3]
    .map((digits) => rest.length + digits)
    .find((n) => `${n}`.length + rest.length === n)!;
  return `${length}${rest}`;
}

const pass = (layer: Buffer, pieceBytes = 1000): Promise<Buffer> => {
  const pieces = Array.from({ length: Math.ceil(layer.length / pieceBytes) }, (_, n) =>
    layer.subarray(n * pieceBytes, (n + 1) * pieceBytes),
  );
  return buffer(checkLayer(Readable.from(pieces) as AsyncIterable<Buffer>));
};

it.each([
  [
    "files, folders and links",
    tar(entry("a/", "", "5"), entry("a/b", "text"), entry("c", "", "2")),
  ],
  ["long names", tar(entry("x", "n".repeat(200), "L"), entry("short", "text"))],
  [
    "a size and attributes in a pax header",
    tar(
      entry("x", paxRecord("mtime", "1.5") + paxRecord("size", "600"), "x"),
      entry("f", "y".repeat(600), "0", 0),
    ),
  ],
  ["nothing", tarEnd],
])("a layer with %s passes unchanged", async (_what, layer) => {
  for (const pieceBytes of [1, 512, 100_000])
    expect((await pass(layer, pieceBytes)).equals(layer)).toBe(true);
});

const inner = tar(entry("file", "x".repeat(2000)));

it.each([
  ["gzip", gzipSync(inner)],
  ["bzip2", bzip2],
  ["xz", xz],
  ["zstd", zstdCompressSync(inner)],
  ["zstd", Buffer.concat([Buffer.from("502a4d1800000000", "hex"), zstdCompressSync(inner)])],
  ["bzip2", tar(entry("BZh91AY", "a tar whose first name is taken for bzip2"))],
])("a layer of %s is refused before an engine unpacks it", async (what, layer) => {
  const whole = Buffer.concat([layer, Buffer.alloc(1024)]);
  await expect(pass(whole)).rejects.toThrow(`a layer holds ${what} data in the place of a tar`);
});

it.each([
  ["a GNU sparse file", tar(entry("big", "x", "S")), 'of the type "S"'],
  [
    "a sparse file in a pax header",
    tar(entry("x", paxRecord("GNU.sparse.realsize", "1000000000000"), "x"), entry("big", "x")),
    "a sparse file",
  ],
  ["a header for all entries", tar(entry("x", paxRecord("size", "5"), "g")), 'of the type "g"'],
  ["a file without a type", tar(entry("a/", "x", "\0")), "of the type"],
  [
    "a link that hides a header",
    tar(entry("link", entry("big", "", "S"), "2")),
    "a link or folder with bytes",
  ],
  [
    "a folder that a pax header gives bytes",
    tar(entry("x", paxRecord("size", "512"), "x"), entry("d/", "", "5")),
    "a link or folder with bytes",
  ],
  [
    "a size of another notation",
    tar(Buffer.concat([binarySize(entry("f", ""))])),
    "a number that is none",
  ],
  ["a pax header of another form", tar(entry("x", "11 size=x 5\n", "x"), entry("f", "")), "none"],
  ["a header that is too long", tar(entry("x", "", "x", 2 * 1024 * 1024)), "too long"],
  [
    "something after its end",
    Buffer.concat([tarEnd, entry("big", "", "S")]),
    "bytes after its end",
  ],
  ["no tar", Buffer.alloc(1024, "x"), "none"],
])("a layer with %s is refused", async (_what, layer, words) => {
  await expect(pass(layer)).rejects.toThrow(words);
});

it("a truncated layer is refused", async () => {
  await expect(pass(entry("f", "x".repeat(600)).subarray(0, 700))).rejects.toThrow("too early");
});

/** The same header with its size in base 256. */
function binarySize(header: Buffer): Buffer {
  header[124] = 0x80;
  header.write(`${checksum(header).toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}

function file(name: string, content: object): Buffer[] {
  const bytes = Buffer.from(JSON.stringify(content));
  return [tarHeader(name, bytes.length), bytes, tarPadding(bytes.length)];
}

test("an image in containerd's store is not packed, and the message says what to do", async () => {
  const folder = tempFolder();
  const tar = Readable.from([
    ...file("blobs/sha256/config", { rootfs: { diff_ids: [] } }),
    ...file("manifest.json", [{ Config: "blobs/sha256/config", Layers: [] }]),
    tarEnd,
  ]);
  // Such a store calls an image by the digest of its manifest.
  const image = `sha256:${"0".repeat(64)}`;
  await expect(packImage(tar, image, join(folder, "packed"), 1_000_000)).rejects.toThrow(
    /containerd's image store.*set image_registry/,
  );
});

describe("fetch images", () => {
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
  let fetcher: ReturnType<typeof createImageFetcher>;

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
    expect(fetcher.missing()).toEqual([
      { image, reason: "it is for arm64, and this host is amd64" },
    ]);
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
});

describe("share image", () => {
  const never = new AbortController().signal;
  const digest = `sha256:${"3".repeat(64)}`;

  let root: string;
  let said: string;
  let pushed: string[];
  let push: () => Promise<string>;
  let save: () => Promise<Readable>;
  let deps: ShareDeps;

  beforeEach(async () => {
    root = tempFolder();
    said = "";
    pushed = [];
    push = () => Promise.resolve(digest);
    save = () => Promise.resolve(Readable.from([Buffer.alloc(1024)]));
    deps = {
      client: { buildImage: () => Promise.reject(new ApiError("transient", "no answer")) },
      imageCalls: {
        push: (repository, tag, _signal, auth) => {
          pushed.push(`${repository}:${tag} by ${auth?.username}`);
          return push();
        },
        save: () => save(),
      },
      spool: await openSpoolDir(root, "0", "here"),
      registry: { name: "registry.example", auth: { username: "me", password: "secret" } },
      maxImageBytes: 1024 * 1024,
      times: { retries: 2, minTimeout: 1, maxTimeout: 2 },
    };
  });

  const share = (build: Parameters<typeof testBuild>[0]) =>
    shareImage(deps, testBuild(build), testImage, (words) => (said += words), never);

  describe("by a registry", () => {
    const build: Partial<LeasedBuild> = {
      share: "registry",
      repository: "registry.example/airlock-t",
      tags: ["v1.0.0", "latest"],
    };

    it("pushes every tag as its own user, and says so", async () => {
      expect(await share(build)).toBe(digest);
      expect(pushed).toEqual([
        "registry.example/airlock-t:v1.0.0 by me",
        "registry.example/airlock-t:latest by me",
      ]);
      expect(said).toContain(`Pushed registry.example/airlock-t:latest (${digest})`);
    });

    it("tries again, and reports each time what the registry says", async () => {
      push = () => {
        push = () => Promise.resolve(digest);
        return Promise.reject(new EngineError("other", "connection refused"));
      };
      expect(await share(build)).toBe(digest);
      expect(said).toMatch(/^Not pushed: connection refused\nPushed /);
    });

    it("gives up with the registry's message, which does not count against the engine", async () => {
      push = () => Promise.reject(new EngineError("other", "denied"));
      const failure = share(build);
      await expect(failure).rejects.toBeInstanceOf(PushError);
      await expect(failure).rejects.toThrow(
        "registry.example/airlock-t:v1.0.0 could not be pushed: denied",
      );
      expect(pushed).toHaveLength(3);
    });
  });

  describe("through the artifact store", () => {
    const build = { share: "store", share_max_bytes: 1024 * 1024 } as const;

    it.each([
      ["an engine that does not export it", () => Promise.reject(new EngineError("other", "gone"))],
      ["an invalid tar", () => Promise.resolve(Readable.from([Buffer.alloc(600, 1)]))],
    ])("%s leaves the build as it is, with a message and no file", async (_what, saves) => {
      save = saves;
      expect(await share(build)).toBeNull();
      expect(said).toMatch(/^The image stays on this host: .+\n$/);
    });

    it.each(["lease_lost", "unauthorized", "incompatible"] as const)(
      "an API that refuses the agent ends the build: %s",
      async (kind) => {
        save = () => Promise.reject(new ApiError(kind, "no"));
        await expect(share(build)).rejects.toMatchObject({ kind });
      },
    );

    it("saves nothing if the API or the agent takes none", async () => {
      save = () => Promise.reject(new Error("asked"));
      expect(await share({ share: "none" })).toBeNull();
      deps = { ...deps, maxImageBytes: 0 };
      expect(await share(build)).toBeNull();
      expect(said).toBe("");
    });
  });
});
