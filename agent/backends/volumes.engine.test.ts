import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { Readable } from "node:stream";
import { getLogger } from "@logtape/logtape";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { tarEnd, tarHeader } from "../images/archive.ts";
import { encodeFrame } from "../sandbox/frames.ts";
import { InstallError } from "../sandbox/job.ts";
import { startForks } from "../testing/backend.ts";
import { specWith, testEngine } from "../testing/engine.ts";
import {
  containersOf,
  deriveImage,
  rawEngine,
  removeContainersOf,
  removeImages,
  removeVolume,
  shell,
} from "../testing/raw-engine.ts";
import { motherSpec } from "./forks.ts";
import {
  type Bundles,
  bundlesVolume,
  createBundles,
  createRootfsStore,
  createVolumeReaper,
  createVolumes,
  type InstallBundle,
} from "./volumes.ts";

const { signal } = new AbortController();

describe("bundles", async () => {
  const never = new AbortController().signal;
  const name = `bundles-${randomUUID()}`;
  const identity = { id: randomUUID(), name, version: "0", labels: {} };
  const spec = motherSpec({ ...identity, accepts: { job_types: null, builds: false } }, 1, null, 0);

  let bundles: Bundles;
  let open: () => Promise<Bundles>;
  beforeEach(async () => {
    const { engine, image } = await testEngine();
    open = async () =>
      createBundles({
        engine,
        spec,
        motherImage: async () => image,
        ids: [0x7000_0000, 65_536],
        ownLabels: new Set(),
        maxBytes: 1024 ** 2,
        keepsUnused: true,
        log: getLogger("test"),
      });
    bundles = await open();
  });
  afterEach(async () => {
    await bundles.close();
    // The volume, too.
    await removeContainersOf(name);
  });

  const file = (path: string, bytes = 10): Buffer[] => [
    encodeFrame("A", Buffer.from(JSON.stringify({ name: path, executable: true, mtime: 1 }))),
    encodeFrame("D", Buffer.alloc(bytes)),
  ];

  /** An installation that sends these frames. */
  const sending =
    (...frames: Buffer[]): InstallBundle =>
    async (keep) => {
      const write = await keep();
      for (const frame of frames) await write(frame);
    };
  const borrow = (install: InstallBundle, content = "key", tenant = "a") =>
    bundles.borrow({ tenant, content }, install, never, () => {});

  /** Runs a shell script in the folder of bundles, and returns its lines. */
  async function inVolume(script: string, mode = "ro"): Promise<string[]> {
    const { image } = await testEngine();
    const said = await shell(image, `cd /bundles && ${script}`, `${spec.bundles}:/bundles:${mode}`);
    return said.split("\n").filter(Boolean);
  }

  /** Paths below the folder of bundles, with owner and mode. */
  const volume = async (): Promise<string[]> =>
    (await inVolume("find . -mindepth 1 -printf '%P %U %m\\n'")).sort();

  /** An installation of more than a third of the room. */
  const large = (path: string): InstallBundle =>
    sending(
      file(path, 0)[0]!,
      ...Array.from({ length: 4 }, () => encodeFrame("D", Buffer.alloc(100_000))),
    );

  /** Names in the volume. Nobody waits for a removal, so tests poll. */
  const names = async (): Promise<string[]> => (await inVolume("ls -1")).sort();
  const patience = { timeout: 60_000, interval: 200 };

  test("what an installation has sent becomes regular files of the zygotes' root", async () => {
    const bundle = await borrow(sending(...file("lib/a/b.py"), ...file("bin")));
    expect(await volume()).toEqual([
      `${bundle.name} 0 711`,
      `${bundle.name}/about 0 644`,
      `${bundle.name}/files 1879048192 755`,
      `${bundle.name}/files/bin 1879048192 755`,
      `${bundle.name}/files/lib 1879048192 755`,
      `${bundle.name}/files/lib/a 1879048192 755`,
      `${bundle.name}/files/lib/a/b.py 1879048192 755`,
    ]);
  });

  test.each([
    ["a path that leads outside", file("../x")],
    ["an absolute path", file("/x")],
    ["an empty part", file("a//x")],
    ["the same file twice", [...file("x"), ...file("x")]],
    ["a file below a file", [...file("x"), ...file("x/y")]],
    ["data without a file", file("x").slice(1)],
    ["a head that is not JSON", [encodeFrame("A", Buffer.from("x"))]],
  ])("an installation that sends %s adds nothing", async (_what, frames) => {
    await expect(borrow(sending(...frames))).rejects.toThrow("not unpacked");
    expect(await volume()).toEqual([]);
  });

  test("another tenant's installation with the same key is its own, and room comes from the tenant that holds most", async () => {
    const first = await borrow(sending(...file("x")), "key", "b");
    first.giveBack();
    const loans = [await borrow(large("y"), "key"), await borrow(large("z"), "other")];
    for (const loan of loans) loan.giveBack();
    expect(loans.map(({ name }) => name)).not.toContain(first.name);
    const last = await borrow(large("w"), "third", "b");
    const left = [first.name, loans[1]!.name, last.name].sort();
    await expect.poll(names, patience).toEqual(left);
  });

  test("one that a job uses stays, though it was used longest ago", async () => {
    const used = await borrow(large("x"), "used");
    (await borrow(large("y"), "unused")).giveBack();
    const last = await borrow(large("z"), "last");
    await expect.poll(names, patience).toEqual([used.name, last.name].sort());
  });

  test("one that ends early adds nothing, and the next one is complete", async () => {
    const cut: InstallBundle = async (keep) => {
      await (
        await keep()
      )(file("half")[0]!);
      throw new InstallError("pip failed");
    };
    await expect(borrow(cut)).rejects.toThrow("pip failed");
    expect(await volume()).toEqual([]);
    const bundle = await borrow(sending(...file("whole")));
    expect((await volume()).at(-1)).toMatch(`${bundle.name}/files/whole`);
  });

  test.each([
    ["bytes", [...file("a", 60_000), ...file("b", 600_000), ...file("c", 600_000)]],
    ["empty files", Array.from({ length: 300 }, (_, n) => file(`${n}`, 0)).flat()],
  ])("one with too many %s is refused with the key to raise", async (_what, frames) => {
    // A frame has at most 256 KiB.
    const pieces = frames.flatMap((frame) =>
      frame.length < 200_000
        ? [frame]
        : Array.from({ length: 6 }, () => encodeFrame("D", frame.subarray(5, 100_005))),
    );
    const refused = borrow(sending(...pieces));
    await expect(refused).rejects.toThrow(InstallError);
    await expect(refused).rejects.toThrow("raise its dependency_cache_bytes");
    expect(await volume()).toEqual([]);
  });

  test("those that are written at once have no more room together than one alone", async () => {
    const frames = ["a", "b"].map((name) => [file(name, 0)[0]!]);
    const pieces = Array.from({ length: 6 }, () => encodeFrame("D", Buffer.alloc(100_000)));
    const writes = frames.map((head, n) => borrow(sending(...head, ...pieces), `key ${n}`));
    const ends = await Promise.allSettled(writes);
    expect(ends.map(({ status }) => status)).toContain("rejected");
  });

  test("a bundle that was in the volume before this process is found, and not installed again", async () => {
    const first = await borrow(sending(...file("x")));
    bundles = await open();
    const found = await borrow(() => Promise.reject(new Error("installed again")));
    expect(found.name).toBe(first.name);
  });

  test.each(["another boot", "a disk that lost its end"])(
    "a bundle of %s is removed and installed again",
    async (what) => {
      const first = await borrow(sending(...file("x")));
      const about = what === "another boot" ? '{"bytes": 10, "boot": "0"}' : "";
      await inVolume(`printf '%s' '${about}' > ${first.name}/about`, "rw");
      bundles = await open();
      const again = await borrow(sending(...file("y")));
      expect((await volume()).at(-1)).toMatch(`${again.name}/files/y`);
    },
  );
});

describe("rootfs", async () => {
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
    return unpackFor(0x7000_0000, ...sent);
  }
  function unpackFor(firstId: number, ...sent: Buffer[]): Promise<string> {
    const exportFiles = async () => Readable.from(sent);
    const motherImage = async () => image;
    const ids = [firstId, 65_536] as const;
    const deps = { engine: { ...engine, exportFiles }, spec, motherImage, ids };
    return createRootfsStore({ ...deps, ownLabels: new Set() }).prepare(image, signal);
  }

  test("an image that breaks off between two of its files is not taken for a whole one", async () => {
    const [a, b] = ["a", "b"].map((name) => tarHeader(name, 0)) as [Buffer, Buffer];
    await expect(unpack(a)).rejects.toThrow("ended early");
    await expect(unpack(a, b.subarray(0, 100))).rejects.toThrow("ended early");
    await unpack(a, b, tarEnd);
  });

  test("64 unpacked images stay at most: those that nothing runs on go, the one asked for longest ago first", async () => {
    const inVolume = (script: string) =>
      shell(image, `cd /rootfs; ${script}`, `${spec.rootfs}:/rootfs`);
    // Two hours ago and later; the oldest has a zygote, and what is being unpacked does not count.
    await inVolume(`rm -rf *; mkdir partial-a
      python3 -c "
import os, time
for n in range(66):
    os.mkdir('old%d' % n)
    os.utime('old%d' % n, (time.time() - 7200 + n,) * 2)"`);
    const lock = `exec 9<old0; flock -s 9; echo locked; sleep 600`;
    const holder = await rawEngine.createContainer({
      Image: image,
      Cmd: ["sh", "-c", `cd /rootfs; ${lock}`],
      HostConfig: { Binds: [`${spec.rootfs}:/rootfs`], AutoRemove: true, Init: true },
      Tty: true,
    });
    try {
      const output = await holder.attach({ stream: true, stdout: true });
      await holder.start();
      await once(output, "data");
      const name = await unpackFor(0x7001_0000, tarHeader("a", 0), tarEnd);
      const left = (await inVolume("ls -1")).trim().split("\n");
      expect(left).toEqual(expect.arrayContaining([name, "partial-a", "old0", "old3", "old65"]));
      expect(left).toHaveLength(66);
    } finally {
      await holder.remove({ force: true });
    }
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
});

describe("volumes", async () => {
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
    const reap = createVolumeReaper(
      { ...engine, unusedVolumes },
      [bundlesVolume(own)],
      () => nowMs,
    );
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
});
