import { createHash, randomUUID } from "node:crypto";
import { createReadStream, readFileSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { gzipSync, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { getLogger } from "@logtape/logtape";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { openSandbox } from "../backends/containers.ts";
import type { Engine } from "../engine/engine.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import { specWith, testEngine } from "../testing/engine.ts";
import { createTestClock, type TestClock } from "../testing/fakes.ts";
import { deriveImage, rawEngine, removeImages } from "../testing/raw-engine.ts";
import {
  type PackedImage,
  packImage,
  tarEnd,
  tarHeader,
  tarPadding,
  type UnpackBounds,
  unpackImage,
} from "./archive.ts";
import { createFurnishedImages, furnishedName } from "./furnish.ts";
import { collectImages } from "./images.ts";
import { createFetchedImages, type FetchedImages } from "./transfer.ts";

const never = new AbortController().signal;

describe("image archive", () => {
  const name = `airlock-test-fetched:${randomUUID()}`;
  const MiB = 1024 * 1024;
  const folder = tempFolder();

  let engine: Engine;
  /** Of two layers. */
  let image: string;
  let packed: PackedImage;

  function tar(files: Record<string, string | Buffer>): Readable {
    const parts = Object.entries(files).flatMap(([path, content]) => {
      const bytes = Buffer.from(content);
      return [tarHeader(path, bytes.length), bytes, tarPadding(bytes.length)];
    });
    return Readable.from([...parts, tarEnd]);
  }

  async function pack(id: string, maxBytes = 8 * MiB): Promise<PackedImage> {
    return packImage(await engine.save(id, never), id, join(folder, randomUUID()), maxBytes);
  }

  async function loadBytes(
    archive: Buffer | Readable,
    id = image,
    bounds: Partial<UnpackBounds> = {},
  ) {
    const stream = Buffer.isBuffer(archive) ? Readable.from([archive]) : archive;
    const all = { maxBytes: 8 * MiB, architecture: await engine.architecture(never), ...bounds };
    await engine.load(Readable.from(unpackImage(stream, id, name, all)), never);
  }

  /** The archive, changed under its compression. */
  function tampered(change: (bytes: Buffer) => Buffer): Buffer {
    return zstdCompressSync(change(zstdDecompressSync(readFileSync(packed.path))));
  }

  async function makeImage(files: Record<string, string>, change?: string): Promise<string> {
    const said = await rawEngine.importImage(
      tar(files),
      change === undefined ? {} : { changes: change },
    );
    return /sha256:[0-9a-f]{64}/.exec(await text(said as Readable))![0];
  }

  beforeAll(async () => {
    ({ engine } = await testEngine());
    const base = await makeImage({ "base.txt": `base ${randomUUID()}` });
    const container = await rawEngine.createContainer({ Image: base, Cmd: ["/none"] });
    await container.putArchive(tar({ "more.txt": randomUUID() }), { path: "/" });
    image = await engine.commit(container.id, "airlock-test", randomUUID(), [], never);
    await container.remove();
    packed = await pack(image);
    await removeImages(base, image);
  });
  afterAll(async () => {
    await removeImages(image);
  });

  test("an image travels unchanged from engine to engine, under the one requested name", async () => {
    const bytes = readFileSync(packed.path);
    expect(packed).toMatchObject({
      sizeBytes: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex"),
    });
    expect(await engine.imageId(image, never)).toBeNull();
    await loadBytes(createReadStream(packed.path));
    expect(await engine.imageNames(image, never)).toEqual([image, name]);
    // Again, as two agents of one engine would.
    await loadBytes(createReadStream(packed.path));
    expect((await pack(image)).sha256).toBe(packed.sha256);
    await removeImages(image);
  });

  const flip = (at: (bytes: Buffer) => number) =>
    tampered((bytes) => {
      const changed = Buffer.from(bytes);
      changed[at(bytes)]! ^= 1;
      return changed;
    });

  /** An image of one layer, which its configuration names as it is; and its id. */
  function withLayer(layer: Buffer): [archive: Buffer, id: string] {
    const sha256 = (bytes: Buffer): string =>
      `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
    const rootfs = { type: "layers", diff_ids: [sha256(layer)] };
    const config = Buffer.from(JSON.stringify({ os: "linux", rootfs }));
    const sizes = JSON.stringify({ config: config.length, layers: [layer.length] });
    const archive = Buffer.concat([Buffer.from(`${sizes}\n`), config, layer]);
    return [zstdCompressSync(archive), sha256(config)];
  }

  test.each<[string, () => [archive: Buffer, id?: string, bounds?: Partial<UnpackBounds>], string]>(
    [
      ["is another image", () => [readFileSync(packed.path), `sha256:${"0".repeat(64)}`], "its id"],
      ["has another configuration", () => [flip((bytes) => bytes.indexOf(10) + 5)], "its id"],
      ["has another layer", () => [flip((bytes) => bytes.length - 1536)], "a layer is not sha256:"],
      [
        "goes on",
        () => [tampered((bytes) => Buffer.concat([bytes, tarEnd]))],
        "more than an image",
      ],
      [
        "ends too early",
        () => [tampered((bytes) => bytes.subarray(0, bytes.length - 700))],
        "it is damaged",
      ],
      ["is truncated", () => [readFileSync(packed.path).subarray(0, -20)], "it is damaged"],
      ["is not an archive", () => [Buffer.from("a tar? ".repeat(300))], "it is damaged"],
      [
        "tells no sizes",
        () => [zstdCompressSync(Buffer.alloc(200_000, "x"))],
        "it does not tell its sizes",
      ],
      [
        "is too large",
        () => [readFileSync(packed.path), image, { maxBytes: 1000 }],
        "more than max_image_bytes",
      ],
      [
        "is for other machines",
        () => [readFileSync(packed.path), image, { architecture: "riscv64" }],
        "this host is riscv64",
      ],
      ["has a compressed layer", () => withLayer(gzipSync(Buffer.alloc(MiB))), "gzip data"],
      [
        "is small and swells",
        () => [
          tampered((bytes) => {
            const [line] = bytes.toString("latin1").split("\n", 1);
            const { config } = JSON.parse(line!) as { config: number };
            return Buffer.concat([
              Buffer.from(`${JSON.stringify({ config, layers: [9 * MiB, 0] })}\n`),
              bytes.subarray(line!.length + 1, line!.length + 1 + config),
              Buffer.alloc(9 * MiB),
            ]);
          }),
        ],
        "more than max_image_bytes",
      ],
    ],
  )("an archive that %s is refused, and nothing of it is there", async (_what, archive, words) => {
    await expect(loadBytes(...archive())).rejects.toThrow(words);
    expect(await engine.imageId(image, never)).toBeNull();
    expect(await engine.imageId(name, never)).toBeNull();
  });

  test("an image that would replace another is neither given nor taken", async () => {
    const label = "LABEL io.airlock.stands-in-for=python:3.9-slim";
    const posing = await makeImage({ "x.txt": randomUUID() }, label);
    await expect(pack(posing)).rejects.toThrow("it would stand in for python:3.9-slim");
    await removeImages(posing);
  });

  test("an image that is too large is not packed", async () => {
    const large = await makeImage({ "x.txt": "x".repeat(MiB) });
    await expect(pack(large, MiB)).rejects.toThrow("more than 1048576 bytes (max_image_bytes)");
    await removeImages(large);
  });
});

describe("fetched images", () => {
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

  it("also removes what was made of an image for containers, which holds its bytes", async () => {
    const image = await make();
    const [furnished] = await startOn(createFurnishedImages(engine, getLogger("test")), image);
    await bounded(0).prune([], never);
    for (const id of [image, furnished!]) expect(await engine.imageId(id, never)).toBeNull();
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
});

/** The images that containers start on where jobs have these images. */
async function startOn(
  furnished: ReturnType<typeof createFurnishedImages>,
  ...images: string[]
): Promise<string[]> {
  const started = images.map(async (image) => {
    let used = "";
    const start = furnished.startOn((spec) => {
      used = spec.image;
      throw new Error("started");
    });
    await expect(start(specWith({ image }), never)).rejects.toThrow("started");
    return used;
  });
  return Promise.all(started);
}

describe("furnished images", async () => {
  const { engine, image } = await testEngine();
  const open = (its: Engine = engine) => createFurnishedImages(its, getLogger("test"));
  const inspect = (id: string) => rawEngine.getImage(id).inspect();
  let base: string;
  beforeEach(async () => {
    base = await deriveImage(image, "true", ["ENV MORE=1", "LABEL io.airlock.owner=x"]);
    // Else an agent of another test would remove what is made of it.
    await engine.tag(base, "airlock-test", randomUUID(), never);
  });
  afterEach(() => removeImages(base));

  test("each image is furnished once, keeps its settings, and says what it is made of", async () => {
    const [one, other] = await startOn(open(), base, base);
    expect(one).not.toBe(base);
    expect([other, ...(await startOn(open(), base))]).toEqual([one, one]);
    const [before, after] = [await inspect(base), await inspect(one!)];
    expect(after.RootFS.Layers?.slice(0, -1)).toEqual(before.RootFS.Layers);
    expect(after.Config.Env).toEqual(before.Config.Env);
    const inherited = Object.entries(after.Config.Labels).filter(([, value]) => value !== "");
    expect(inherited).toEqual([["io.airlock.furnished", base]]);
  });

  test("containers start on the image itself if it cannot be furnished", async () => {
    const commit = () => Promise.reject(new EngineError("disk_full", "no space"));
    expect(await startOn(open({ ...engine, commit }), base)).toEqual([base]);
    const filters = { ancestor: [base] };
    expect(await rawEngine.listContainers({ all: true, filters })).toEqual([]);
  });

  test("one that is gone is made again", async () => {
    const furnished = open();
    const [first] = await startOn(furnished, base);
    await rawEngine.getImage(first!).remove({ noprune: true });
    const start = furnished.startOn((spec, signal) => openSandbox(engine, spec, signal));
    const sandbox = await start(specWith({ image: base }), never);
    await sandbox.close();
    expect(await engine.imageId(furnishedName(base), never)).not.toBe(first);
  });

  test("an image that says it is another's furnished one is not taken for it", async () => {
    const victim = await deriveImage(base, "touch /victim");
    const label = `LABEL io.airlock.furnished=${victim}`;
    const stranger = await deriveImage(base, "touch /stranger", [label]);
    const [made] = await startOn(open(engine), victim);
    const { parentId } = (await engine.imageList(never)).find(({ id }) => id === made)!;
    expect(parentId).toBe(victim);
    await removeImages(made!, stranger, victim);
  });

  test("agents on one engine that furnish the same image at once leave one", async () => {
    let committed = 0;
    const both = Promise.withResolvers<void>();
    const commit: Engine["commit"] = async (...asked) => {
      const id = await engine.commit(...asked);
      committed += 1;
      if (committed === 2) both.resolve();
      await both.promise;
      return id;
    };
    const made = await Promise.all([0, 1].map(() => startOn(open({ ...engine, commit }), base)));
    const left = (await engine.imageList(never)).filter(({ parentId }) => parentId === base);
    expect(left.map(({ id, names }) => [id, names])).toEqual([
      [made[0]![0], [furnishedName(base)]],
    ]);
    expect(made[1]).toEqual(made[0]);
  });
});

describe("images that nothing needs", async () => {
  const { engine, image } = await testEngine();
  const HOUR_MS = 3_600_000;
  let made: string[];
  beforeEach(() => {
    made = [];
  });
  afterEach(() => removeImages(...made));

  /** An image of so many MiB more than its base. */
  async function derive(base: string, mebibytes: number, ...changes: string[]): Promise<string> {
    const script = `head -c ${mebibytes}M /dev/urandom > /${randomUUID()}`;
    made.push(await deriveImage(base, script, changes));
    return made.at(-1)!;
  }

  /**
   * Collects as an agent whose engine has the images of this test alone; says which are left. Agents of other tests would
   * remove them too: for those, the labels are no agent's.
   */
  async function collect(
    mebibytes: number,
    { needed = [], used = [], laterMs = 25 * HOUR_MS }: Partial<Collected> = {},
  ): Promise<string[]> {
    const imageList = async () =>
      (await engine.imageList(never))
        .map((one) => ({ ...one, labels: ofAgents(one.labels), createdMs: made.indexOf(one.id) }))
        .filter(({ id, createdMs }) => id === image || createdMs >= 0);
    const imageCalls = { ...engine, imageList };
    const deps = { imageCalls, needed: () => needed, used: () => Promise.resolve(used) };
    const nowMs = () => laterMs;
    const log = getLogger("test");
    await collectImages({ ...deps, maxBytes: mebibytes * 1024 ** 2, nowMs, log }, never);
    const ids = (await imageList()).map(({ id }) => id);
    return made.filter((id) => ids.includes(id));
  }
  const ofAgents = (labels: Readonly<Record<string, string>>) =>
    Object.fromEntries(
      Object.entries(labels).map(([name, value]) => [
        name.replace("airlock-test", "airlock"),
        value,
      ]),
    );
  type Collected = { needed: string[] | null; used: string[]; laterMs: number };
  const built = "LABEL io.airlock-test.repository=airlock-science";

  test("steps of builds go while they take more than the limit, the oldest first", async () => {
    const label = "LABEL io.airlock-test.step=x";
    const alone = await derive(image, 4, label);
    const parent = await derive(image, 4, label);
    const child = await derive(parent, 4, label);
    expect(await collect(13)).toEqual(made);
    expect(await collect(1, { laterMs: 0 })).toEqual(made);
    expect(await collect(1, { needed: null })).toEqual(made);
    expect(await collect(9)).toEqual([parent, child]);
    expect(await collect(5)).toEqual([parent]);
    expect(await collect(1)).toEqual([]);
    expect(await engine.imageId(alone, never)).toBeNull();
    expect(await engine.imageId(image, never)).toBe(image);
  });

  test("a step stays whose image a name, a job type or a container needs", async () => {
    const step = await derive(image, 1, "LABEL io.airlock-test.step=x");
    const child = await derive(step, 1, built);
    expect(await collect(0)).toEqual(made);
    const own = await derive(image, 1, "LABEL io.airlock-test.step=y");
    expect(await collect(0, { needed: [own] })).toEqual(made);
    const container = await rawEngine.createContainer({ Image: own });
    expect(await collect(0)).toEqual(made);
    await container.remove();
    expect(await collect(0)).toEqual([step, child]);
  });

  test("a build of a tenant goes with its name once its job type is gone or has another, and no sooner", async () => {
    const labels = [built.replace("science", "acme.t"), "LABEL io.airlock.tenant=acme"];
    const id = await derive(image, 1, ...labels);
    await engine.tag(id, "airlock-acme.t", "latest", never);
    expect(await collect(0, { laterMs: 14 * 60_000 })).toEqual(made);
    expect(await collect(0, { laterMs: HOUR_MS, needed: [id] })).toEqual(made);
    expect(await collect(2, { laterMs: HOUR_MS })).toEqual(made);
    expect(await collect(0, { laterMs: HOUR_MS })).toEqual([]);
    expect(await engine.imageId("airlock-acme.t:latest", never)).toBeNull();
  });

  test("a build goes a day after another has replaced it, with what was made of it", async () => {
    const first = await derive(image, 1, built);
    const furnished = await derive(
      first,
      0,
      `LABEL io.airlock-test.furnished=${first}`,
      "LABEL io.airlock-test.repository=",
    );
    await engine.tag(furnished, "airlock-test", randomUUID(), never);
    const second = await derive(image, 1, built);
    const used = [furnished];
    expect(await collect(0, { used, laterMs: 23 * HOUR_MS })).toEqual(made);
    expect(await collect(0, { used, needed: [first] })).toEqual(made);
    expect(await collect(0, { used })).toEqual([second]);
  });

  test("a furnished image goes that this agent does not use and whose base has no name; the base stays", async () => {
    const base = await derive(image, 1, "LABEL a=b");
    const furnished = await derive(base, 0, `LABEL io.airlock-test.furnished=${base}`);
    const [repository, tag] = [`airlock-test-${randomUUID()}`, "1"];
    await engine.tag(furnished, repository, `${tag}-furnished`, never);
    await engine.tag(base, repository, tag, never);
    expect(await collect(9)).toEqual(made);
    await engine.removeName(`${repository}:${tag}`, never);
    expect(await collect(9, { used: [furnished] })).toEqual(made);
    expect(await collect(9, { needed: [base] })).toEqual(made);
    expect(await collect(9)).toEqual([base]);
  });
});

describe("stand in", () => {
  const name = "io.airlock.test";

  test("an image derived from another is not taken for it, although it has its labels", async () => {
    const { engine } = await testEngine();
    const find = (value: string) =>
      engine.labelledImageId(name, value, AbortSignal.timeout(30_000));
    const [own, later] = [randomUUID(), randomUUID()];

    const tar = () => Readable.from([tarHeader("file", 0), tarEnd]);
    const changes = [`LABEL ${name}=${own}`];
    const [repo, tag] = [`airlock-test-${own}`, "1"];
    await text(await rawEngine.importImage(tar(), { changes, repo, tag }));
    const { Id: base } = await rawEngine.getImage(`${repo}:${tag}`).inspect();
    const container = await rawEngine.createContainer({ Image: base, Cmd: ["none"] });
    const commit = async (changes: string[]) =>
      ((await container.commit({ changes })) as { Id: string }).Id;
    const sameFiles = await commit(["ENV MORE=1"]);
    await container.putArchive(tar(), { path: "/" });
    const moreFiles = await commit([`LABEL ${name}=${later}`]);
    await container.remove();
    try {
      expect(await find(own)).toBe(base);
      expect(await find(later)).toBeNull();
    } finally {
      await removeImages(base, sameFiles, moreFiles);
    }
  });
});
