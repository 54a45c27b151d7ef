import { setImmediate as nextTurn } from "node:timers/promises";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  encodeSwitchFrame,
  FrameError,
  switchDecoder,
  type SwitchFrame,
} from "../sandbox/frames.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import { specWith } from "../testing/engine.ts";
import { createTestClock } from "../testing/fakes.ts";
import { type Mother, NotForkable, openChannel, windowBytes, type Zygote } from "./mother.ts";
import { bundlesVolume, createVolumeReaper } from "./volumes.ts";
import { createPreloadLearner, createZygotes, topImports, zygoteKey } from "./zygotes.ts";

const settle = () => new Promise(setImmediate);
const minutes = 60_000;

/** A learner whose imports take as long as the test says; 0: it has no such module. */
function createWorld(tookMs: Record<string, number>) {
  const clock = createTestClock();
  const prepared: string[] = [];
  const world = { isBusy: false, failure: null as Error | null };
  const learner = createPreloadLearner({
    prepare: async ({ preload }) => {
      prepared.push(preload.join(" "));
      if (world.failure) throw world.failure;
      return new Map(preload.map((name) => [name, tookMs[name] ?? 0]));
    },
    isBusy: () => world.isBusy,
    clock,
  });
  /** Has a job of a tenant with these imports come, and returns what its zygote has imported. */
  async function comeOf(tenant: string, ...imports: string[]): Promise<readonly string[]> {
    const { preload } = learner.specFor(specWith({}), imports, tenant);
    await settle();
    return preload;
  }
  const come = (...imports: string[]) => comeOf("a", ...imports);
  return { world, learner, clock, prepared, come, comeOf };
}

test("the fourth job in ten minutes with the same slow imports finds them imported", async () => {
  const { come, prepared } = createWorld({ numpy: 80, pandas: 300 });
  for (let n = 0; n < 3; n++) expect(await come("numpy", "pandas")).toEqual([]);
  expect(prepared).toEqual(["numpy pandas"]);
  expect(await come("numpy", "pandas", "json")).toEqual(["numpy", "pandas"]);
  expect(await come("numpy")).toEqual([]);
  expect(await come()).toEqual([]);
});

test("no tenant's jobs teach or find what another's import", async () => {
  const { comeOf, prepared, learner } = createWorld({ numpy: 80 });
  for (const tenant of ["a", "b", "c", "a", "b"]) await comeOf(tenant, "numpy");
  expect(prepared).toEqual([]);
  await comeOf("a", "numpy");
  expect(await comeOf("a", "numpy")).toEqual(["numpy"]);
  expect(await comeOf("b", "numpy")).toEqual([]);
  const [ofA, ofB] = ["a", "b"].map((tenant) => learner.specFor(specWith({}), ["numpy"], tenant));
  expect(zygoteKey(ofA!)).not.toBe(zygoteKey(ofB!));
});

test("jobs that come too seldom are not learned from", async () => {
  const { come, clock, prepared } = createWorld({ numpy: 80 });
  for (let n = 0; n < 5; n++) {
    await come("numpy");
    clock.advance(5 * minutes);
  }
  expect(prepared).toEqual([]);
});

test("modules that are quick to import, or not there, are left out", async () => {
  const { come, prepared } = createWorld({ numpy: 80, json: 2 });
  for (let n = 0; n < 7; n++) await come("json", "numpy", "missing");
  expect(prepared).toEqual(["json numpy missing", "numpy"]);
  expect(await come("json", "numpy")).toEqual(["numpy"]);
  for (let n = 0; n < 5; n++) await come("json");
  expect(prepared).toHaveLength(2);
});

test("nothing is prepared while jobs wait, nor again for a while after a failure", async () => {
  const { world, learner, clock, come, prepared } = createWorld({ numpy: 80 });
  world.isBusy = true;
  for (let n = 0; n < 5; n++) await come("numpy");
  expect(prepared).toEqual([]);
  world.isBusy = false;
  world.failure = new Error("a preloaded module has started a thread");
  for (let n = 0; n < 5; n++) await come("numpy");
  expect(prepared).toEqual(["numpy"]);
  world.failure = null;
  clock.advance(11 * minutes);
  for (let n = 0; n < 3; n++) await come("numpy");
  expect(await come("numpy")).toEqual(["numpy"]);
  learner.forget(specWith({ preload: ["numpy"], learnedFor: "a" }));
  expect(await come("numpy")).toEqual([]);
  expect(prepared).toHaveLength(2);
});

test("few sets are kept, those used last", async () => {
  const names = ["a", "b", "c", "d"];
  const { come } = createWorld(Object.fromEntries(names.map((name) => [name, 50])));
  for (const name of names) for (let n = 0; n < 3; n++) await come(name);
  expect(await come("d")).toEqual(["d"]);
  expect(await come("a")).toEqual([]);
});

test.each<[string, string, string[]]>([
  [
    "modules, once each",
    "import numpy as np, os.path\nfrom pandas import DataFrame\nimport numpy",
    ["numpy", "os.path", "pandas"],
  ],
  ["also below comments, docstrings and code", '"""A."""\n# b\nx = 1\nimport json  # c', ["json"]],
  [
    "none in blocks, of its own package or from the future",
    "if x:\n    import a\nfrom . import b\nfrom __future__ import annotations",
    [],
  ],
  ["none in what is no import", "import a; print(1)\nimportant = 1\nimport 1a\nfrom_x = 2", []],
  [
    "none after something that an earlier import would miss",
    "import a\nos.environ['X'] = '1'\nimport b",
    ["a"],
  ],
  ["none after a thread count", "OMP_NUM_THREADS = 1\nimport numpy", []],
  ["of Windows lines", "import a\r\nimport b\r\n", ["a", "b"]],
])("finds %s", (_what, code, names) => {
  expect(topImports(code)).toEqual(names);
});

test("looks at the beginning of a long text alone, and at few modules", () => {
  expect(topImports(`${"x = 1\n".repeat(200)}import a`)).toEqual([]);
  expect(topImports(`#${"x".repeat(16_384)}\nimport a`)).toEqual([]);
  const many = Array.from({ length: 30 }, (_, n) => `import m${n}`).join("\n");
  expect(topImports(many)).toHaveLength(16);
});

test("a zygote that ended as soon as it was ready serves no second job", async () => {
  let started = 0;
  const mother = {
    machine: "x86_64",
    isRetired: () => false,
    startZygote: (): Promise<Zygote> => {
      started += 1;
      const died = AbortSignal.abort(new Error("the zygote ended"));
      return Promise.resolve({
        died,
        open: () => Promise.reject(died.reason),
        retire: () => {},
      } as never);
    },
  } as Partial<Mother> as Mother;
  const zygotes = createZygotes({
    engine: { imageId: async () => "sha256:1", imageEnvironment: async () => [] } as never,
    mother: async () => mother,
    rootfs: { prepare: async () => "root", forget: () => {}, close: async () => {} },
  });
  await zygotes.of(specWith());
  await zygotes.of(specWith());
  expect(started).toBe(2);
});

test("of the kinds that cannot be forked, the last 50 are known", async () => {
  let started = 0;
  const startZygote = () => Promise.reject(new NotForkable(`${++started}`));
  const zygotes = createZygotes({
    engine: { imageId: async () => "sha256:1", imageEnvironment: async () => [] } as never,
    mother: async () =>
      ({ machine: "x86_64", isRetired: () => false, startZygote }) as Partial<Mother> as Mother,
    rootfs: { prepare: async () => "root", forget: () => {}, close: async () => {} },
  });
  const fail = (kind: number) => zygotes.of(specWith({ env: { KIND: `${kind}` } }));
  for (let kind = 1; kind <= 51; kind++) await expect(fail(kind)).rejects.toThrow(`${kind}`);
  await expect(fail(2)).rejects.toThrow("2");
  await expect(fail(1)).rejects.toThrow("52");
});

const job = 7;

/** A channel, and what it has sent so far, decoded. */
function channelWithRecord() {
  const sent: SwitchFrame[] = [];
  const decode = switchDecoder();
  const channel = openChannel(job, (chunk: Uint8Array) => {
    sent.push(...decode(chunk));
    return true;
  });
  const dataOf = (frames: SwitchFrame[]): Buffer =>
    Buffer.concat(frames.filter(({ type }) => type === "D").map(({ payload }) => payload));
  return { ...channel, sent, data: () => dataOf(sent) };
}

const frame = (type: string, payload: Uint8Array = Buffer.alloc(0)): SwitchFrame => ({
  number: job,
  type,
  payload: Buffer.from(payload),
});

function credit(bytes: number): SwitchFrame {
  const word = Buffer.alloc(4);
  word.writeUInt32BE(bytes);
  return frame("C", word);
}

test("frames come out as they went in, however the stream is cut", () => {
  const frames = fc.array(
    fc.record({
      number: fc.nat(),
      type: fc.constantFrom("D", "C", "G"),
      payload: fc.uint8Array({ maxLength: 300 }),
    }),
  );
  fc.assert(
    fc.property(frames, fc.integer({ min: 1, max: 50 }), (all, size) => {
      const bytes = Buffer.concat(all.map((f) => encodeSwitchFrame(f.number, f.type, f.payload)));
      const decode = switchDecoder();
      const got: SwitchFrame[] = [];
      for (let at = 0; at < bytes.length; at += size)
        got.push(...decode(bytes.subarray(at, at + size)));
      // Data may come in more pieces.
      type Plain = { number: number; type: string; payload: Uint8Array };
      const plain = ({ number, type, payload }: Plain) =>
        type === "D" && payload.length > 0
          ? [...payload].map((byte) => `${number} ${byte}`)
          : [`${number} ${type} ${[...payload].join()}`];
      expect(got.flatMap(plain)).toEqual(all.flatMap(plain));
    }),
  );
});

test("a frame over the limit is refused at its head", () => {
  const head = encodeSwitchFrame(1, "D").subarray(0, 9);
  head.writeUInt32BE(2 ** 30, 5);
  expect(() => switchDecoder()(head)).toThrow(FrameError);
});

describe("what goes to a job", () => {
  test("goes as far as the credit, and on with more of it, in order", async () => {
    const { link, take, sent, data } = channelWithRecord();
    const bytes = Buffer.from(Uint8Array.from({ length: 3 * windowBytes }, (_, at) => at % 251));
    link.input.write(bytes);
    await nextTurn();
    expect(data()).toEqual(bytes.subarray(0, windowBytes));
    take(credit(1000));
    expect(data()).toEqual(bytes.subarray(0, windowBytes + 1000));
    take(credit(3 * windowBytes));
    await nextTurn();
    expect(data().equals(bytes)).toBe(true);
    expect(sent.every(({ number }) => number === job)).toBe(true);
  });

  test("ends with the job: nothing waits for credit that never comes", async () => {
    const { link, take } = channelWithRecord();
    let isWritten = false;
    link.input.write(Buffer.alloc(2 * windowBytes), () => (isWritten = true));
    await nextTurn();
    expect(isWritten).toBe(false);
    take(frame("G"));
    await nextTurn();
    expect(isWritten).toBe(true);
  });
});

describe("what comes from a job", () => {
  test("is read in order, and only what was read gives credit", async () => {
    const { link, take, sent } = channelWithRecord();
    const half = Buffer.alloc(windowBytes / 2, "a");
    take(frame("D", half));
    take(frame("D", Buffer.from("b")));
    const output = link.output[Symbol.asyncIterator]();
    expect((await output.next()).value).toEqual(half);
    expect(sent).toEqual([]);
    expect((await output.next()).value).toEqual(Buffer.from("b"));
    expect(sent.map(({ type, payload }) => [type, payload.readUInt32BE(0)])).toEqual([
      ["C", windowBytes / 2],
    ]);
  });

  test("is read to its end before the end of the job is told", async () => {
    const { link, take } = channelWithRecord();
    take(frame("D", Buffer.from("last words")));
    take(frame("G"));
    const read: string[] = [];
    for await (const chunk of link.output) read.push(Buffer.from(chunk).toString("utf8"));
    expect(read).toEqual(["last words"]);
  });

  test("ends when the mother ends", async () => {
    const { link, take } = channelWithRecord();
    const next = link.output[Symbol.asyncIterator]().next();
    take(null);
    expect(await next).toMatchObject({ done: true });
  });

  test("is a fault where it is no frame of a job", () => {
    expect(() => channelWithRecord().take(frame("Z"))).toThrow(FrameError);
  });

  test("keeps the last words of its stderr, within a bound", () => {
    const { link, take } = channelWithRecord();
    take(frame("E", Buffer.from("x".repeat(10_000))));
    take(frame("E", Buffer.from("end")));
    expect(link.diagnostics()).toHaveLength(4096);
    expect(link.diagnostics()).toMatch(/end$/);
  });
});

test("a destroyed link kills its job once, and reads no more", async () => {
  const { link, take, sent } = channelWithRecord();
  take(frame("D", Buffer.from("unread")));
  link.destroy();
  link.destroy();
  take(frame("D", Buffer.from("late")));
  expect(sent.map(({ type }) => type)).toEqual(["K"]);
  expect(await link.output[Symbol.asyncIterator]().next()).toMatchObject({ done: true });
});

test("a volume that cannot be removed does not hold up the others, and is tried again an hour later", async () => {
  const agents = ["stuck", "gone"];
  const tried: string[] = [];
  let nowMs = 0;
  const engine = {
    unusedVolumes: async () =>
      agents.map((agentName) => ({ name: bundlesVolume(agentName), agentName })),
    async removeVolume(name: string) {
      tried.push(name);
      if (name === bundlesVolume("stuck")) throw new EngineError("other", "device busy");
      agents.pop();
    },
  };
  const { signal } = new AbortController();
  const reap = createVolumeReaper(engine, [], () => nowMs);
  await reap(signal);
  nowMs = 3600_000;
  await expect(reap(signal)).rejects.toThrow("busy");
  expect(await reap(signal)).toBe(1);
  nowMs += 3600_000 - 1;
  expect(await reap(signal)).toBe(0);
  expect(tried).toEqual(["stuck", "gone"].map(bundlesVolume));
  nowMs += 1;
  await expect(reap(signal)).rejects.toThrow("busy");
});
