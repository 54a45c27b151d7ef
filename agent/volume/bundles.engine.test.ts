import { randomUUID } from "node:crypto";
import { text } from "node:stream/consumers";
import { getLogger } from "@logtape/logtape";
import { afterEach, beforeEach, expect, test } from "vitest";
import { InstallError } from "../sandbox/package-request.ts";
import { encodeFrame } from "../sandbox/protocol/frames.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { removeContainersOf, rawEngine } from "../sandbox/testing/raw-engine.ts";
import { motherSpec } from "../fork/keep-mother.ts";
import { createBundles, type InstallBundle, type Bundles } from "./bundles.ts";

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
  const container = await rawEngine.createContainer({
    Image: image,
    Entrypoint: ["sh", "-c"],
    Cmd: [`cd /bundles && ${script}`],
    User: "0:0",
    Tty: true,
    HostConfig: { Binds: [`${spec.bundles}:/bundles:${mode}`] },
  });
  try {
    const stream = await container.attach({ stream: true, stdout: true });
    const said = text(stream);
    await container.start();
    await container.wait();
    return (await said).split("\r\n").filter(Boolean);
  } finally {
    await container.remove({ force: true });
  }
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
