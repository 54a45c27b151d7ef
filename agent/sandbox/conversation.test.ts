import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import * as fc from "fast-check";
import { afterEach, describe, expect, test, vi } from "vitest";
import { openFilesIn } from "../../shared/testing/files.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import {
  data,
  exit,
  exitWith,
  fakeSupervisor,
  fileHead,
  job,
  json,
  lies,
  out,
  ready,
  started,
  summary,
} from "../testing/fake-supervisor.ts";
import { openConversation, type Patience, sendCall } from "./conversation.ts";
import { encodeFrame, frameDecoder } from "./frames.ts";
import type { RunOptions, SandboxCall } from "./job.ts";
import { isArtifactName } from "./output.ts";
import { EngineError } from "./sandbox.ts";
import type { RunReport } from "./verdict.ts";

const never = new AbortController().signal;

/** A supervisor that is ready, and the conversation with it. */
async function openReady(patience?: Patience) {
  const supervisor = fakeSupervisor();
  supervisor.say(ready);
  const conversation = await openConversation(supervisor.link, never, patience);
  return { ...supervisor, conversation };
}

describe("conversation", () => {
  const spoolRoot = tempFolder();

  function optionsWith(changes: Partial<RunOptions> = {}): RunOptions {
    return { signal: never, spoolDir: mkdtempSync(join(spoolRoot, "run-")), ...changes };
  }

  test("a job that is sent ahead is sent once, before the supervisor is ready, and is the only one", async () => {
    const { link, heard, output, say } = fakeSupervisor();
    const opening = openConversation(link, never, undefined, job);
    await vi.waitFor(() => expect(heard).toEqual(["J", "C", "I", "G"]));
    say(ready, started, exit, summary);
    const conversation = await opening;
    await expect(conversation.run({ ...job }, optionsWith())).rejects.toThrow(
      "another job was sent",
    );
    expect(await conversation.run(job, optionsWith())).toMatchObject({
      ending: "exited",
      started: true,
    });
    expect(heard).toHaveLength(4);
    output.end();
  });

  /** Runs a job against a supervisor that says `frames` and then ends. */
  async function runAgainst(...frames: Buffer[]): Promise<RunReport> {
    const { conversation, output, say } = await openReady();
    say(...frames);
    output.end();
    return conversation.run(job, optionsWith());
  }

  describe("a large file", () => {
    afterEach(() => vi.restoreAllMocks());

    const pieces = Array.from({ length: 64 }, (_, n) => Buffer.alloc(64 * 1024, n));
    const content = Buffer.concat(pieces);
    const large = { ...job, caps: { ...job.caps, artifactBytes: content.length } };

    /** A run that has begun to send the bytes of a file, and the disk's methods, which `write` stands for. */
    async function runOnto(
      bytes: readonly Buffer[],
      write: (call: () => Promise<unknown>) => unknown,
    ) {
      const { conversation, output, say } = await openReady();
      const handle = await open("/dev/null");
      const disk = Object.getPrototypeOf(handle) as FileHandle;
      await handle.close();
      for (const method of ["write", "writev"] as const) {
        const original = Reflect.get(disk, method) as (...given: unknown[]) => Promise<unknown>;
        vi.spyOn(disk, method).mockImplementation(function (this: FileHandle, ...given: unknown[]) {
          return write(() => original.apply(this, given)) as never;
        });
      }
      const options = optionsWith();
      const running = conversation.run(large, options);
      running.catch(() => {});
      const size = bytes.reduce((sum, { length }) => sum + length, 0);
      say(started, exit, fileHead("x", size));
      for (const [n, piece] of bytes.entries()) {
        output.write(encodeFrame("D", piece));
        // Time for the disk to fail between two pieces.
        if (n === 0) await sleep(50);
      }
      say(summary);
      return { running, output, spoolDir: options.spoolDir };
    }

    test("slows its supervisor down while the disk is slow, and is whole in the end", async () => {
      const disk = Promise.withResolvers<void>();
      const { running, output } = await runOnto(pieces, async (call) => {
        await disk.promise;
        return call();
      });
      for (let turn = 0; turn < 300; turn++) await new Promise(setImmediate);
      const waiting = output.readableLength + output.writableLength;
      expect(waiting).toBeGreaterThan(content.length - 1024 * 1024);
      disk.resolve();
      const [artifact] = (await running).artifacts;
      expect(readFileSync(artifact!.path).equals(content)).toBe(true);
      expect(artifact!.sha256).toBe(createHash("sha256").update(content).digest("hex"));
    });

    test.each([
      ["one byte", [Buffer.from("x")]],
      ["many bytes", pieces],
    ])(
      "of %s that the disk has no room for ends the run with the disk's error",
      async (_what, bytes) => {
        const full = Object.assign(new Error("no space left"), { code: "ENOSPC" });
        const { running, spoolDir } = await runOnto(bytes, () => Promise.reject(full));
        await expect(running).rejects.toBe(full);
        expect(openFilesIn(spoolDir)).toEqual([]);
      },
    );
  });

  test("an invalid result.json is kept as an artifact", async () => {
    const report = await runAgainst(
      started,
      exit,
      fileHead("result.json", 3, true),
      data("[1]"),
      summary,
    );
    expect(report.result).toMatchObject({ kind: "invalid" });
    expect(report.artifacts).toMatchObject([{ name: "result.json", sizeBytes: 3 }]);
  });

  test("an interpreter that cannot start is reported in its own words", async () => {
    const { link, say } = fakeSupervisor();
    say(json("F", { message: "the interpreter ended", output: "no module named encodings" }));
    await expect(openConversation(link, never)).rejects.toMatchObject({
      name: "EngineError",
      code: "command_not_found",
      transient: false,
      message: "the interpreter ended: no module named encodings",
    });
  });

  test("a supervisor that ends before it is ready is reported in its own words", async () => {
    const { link, output } = fakeSupervisor();
    output.end();
    await expect(openConversation(link, never)).rejects.toMatchObject({
      name: "EngineError",
      transient: true,
      message: expect.stringContaining("Traceback: its own") as string,
    });
  });

  test("the wait for a supervisor can be given up", async () => {
    const { link } = fakeSupervisor();
    const giveUp = new AbortController();
    const opening = openConversation(link, giveUp.signal);
    giveUp.abort(new Error("no time"));
    await expect(opening).rejects.toThrow("no time");
  });

  test("a waiting supervisor that ends is noticed", async () => {
    const { conversation, output } = await openReady();
    const { died } = conversation;
    expect(died.aborted).toBe(false);
    output.end();
    await once(died, "abort");
    expect(died.reason).toMatchObject({ message: expect.stringContaining("ended") as string });
  });

  test("a container that ends before its code started is an error, so that the job can be retried", async () => {
    await expect(runAgainst()).rejects.toMatchObject({ name: "EngineError", transient: true });
  });

  test.each([
    ["in the middle of the code", [started, out]],
    ["in the middle of a frame", [started, out, exit.subarray(0, 20)]],
  ])("a stream that ends %s leaves what was known", async (_where, frames) => {
    expect(await runAgainst(...frames)).toMatchObject({
      ending: "lost",
      started: true,
      exitStatus: null,
      stdout: Buffer.from("partial"),
      lostReason: expect.stringContaining("Traceback: its own") as string,
      usage: null,
    });
  });

  test("a stream that ends in the middle of a file keeps the files before it", async () => {
    const report = await runAgainst(
      started,
      exit,
      fileHead("a", 1),
      data("x"),
      fileHead("b", 5),
      data("hel"),
    );
    expect(report).toMatchObject({ ending: "exited", exitStatus: 0, artifacts: [{ name: "a" }] });
    expect(report.lostReason).not.toBeNull();
  });

  const impatient: Patience = { overtimeMs: 0, silenceMs: 20, collectMs: 60_000 };

  test("a supervisor that ignores the cancel is given up", async () => {
    const { conversation, say } = await openReady(impatient);
    const cancel = new AbortController();
    say(started, out);
    const onOutput = (): void => cancel.abort();
    const report = await conversation.run(job, optionsWith({ signal: cancel.signal, onOutput }));
    expect(report).toMatchObject({ ending: "cancelled", stdout: Buffer.from("partial") });
  });

  test("a job that is cancelled already is never sent", async () => {
    const { conversation, heard } = await openReady();
    const report = await conversation.run(job, optionsWith({ signal: AbortSignal.abort() }));
    expect(report).toMatchObject({ ending: "cancelled", started: false });
    expect(heard).toEqual([]);
  });

  test("an agent without room for artifacts fails instead of losing them", async () => {
    const { conversation, say } = await openReady();
    say(started, exit, fileHead("x", 1), data("y"), summary);
    const spoolDir = join(spoolRoot, "no-folder");
    writeFileSync(spoolDir, "");
    await expect(conversation.run(job, optionsWith({ spoolDir }))).rejects.toThrow("EEXIST");
  });
});

describe("send job", () => {
  const call: SandboxCall = {
    number: 1,
    context: "default",
    contexts: [],
    restart: false,
    env: {},
    fetch: [],
    onlyFetches: false,
    files: [],
  };

  /** A link, and the types of the frames in each write to it. */
  function recordedLink() {
    const writes: string[][] = [];
    const decode = frameDecoder();
    const note = (bytes: Buffer, done: () => void): void => {
      writes.push(decode(bytes).map(({ type }) => type));
      done();
    };
    const input = new Writable({
      write: (bytes: Buffer, _encoding, done) => note(bytes, done),
      writev: (chunks, done) =>
        note(Buffer.concat(chunks.map(({ chunk }) => chunk as Buffer)), done),
    });
    return { link: { ...fakeSupervisor().link, input }, writes };
  }

  test("a call without files is one write", async () => {
    const { link, writes } = recordedLink();
    expect(await sendCall(link, job, call, never, never)).toBe(true);
    expect(writes).toEqual([["N", "J", "C", "I", "G"]]);
  });

  test("the job of a call that is cancelled before it is sent stays here", async () => {
    const { link, writes } = recordedLink();
    expect(await sendCall(link, job, call, never, AbortSignal.abort())).toBe(false);
    expect(writes).toEqual([["N"]]);
  });
});

describe("lying supervisor", () => {
  /** Code that has taken over its PID 1 can say what it likes: it must harm nobody but itself. */
  const spoolRoot = tempFolder();
  const patience: Patience = { overtimeMs: 0, silenceMs: 60, collectMs: 150 };
  const patient: Patience = { overtimeMs: 60_000, silenceMs: 60_000, collectMs: 60_000 };

  interface Heard {
    readonly outcome: RunReport | EngineError;
    readonly spoolDir: string;
  }

  /** Runs a job against a supervisor that says `bytes`, and then ends or goes silent. */
  async function runAgainst(bytes: Buffer, end: "ends" | "stalls" = "ends"): Promise<Heard> {
    const { link, output } = fakeSupervisor();
    const spoolDir = mkdtempSync(join(spoolRoot, "run-"));
    output.write(bytes);
    if (end === "ends") output.end();
    // A stream that ends gets as much time as a busy disk may take. One that stalls is given up soon.
    const [waitMs, waits] =
      end === "ends" ? ([60_000, patient] as const) : ([200, patience] as const);
    const timeoutMs = end === "ends" ? job.timeoutMs : 60;
    const outcome = await openConversation(link, AbortSignal.timeout(waitMs), waits)
      .then((conversation) => conversation.run({ ...job, timeoutMs }, { signal: never, spoolDir }))
      .catch((error: unknown) => {
        if (error instanceof EngineError || (error as Error).name === "TimeoutError") return error;
        throw error;
      });
    return { outcome: outcome as Heard["outcome"], spoolDir };
  }

  /** What no outcome may have, whatever the supervisor said. */
  function harmIn({ outcome, spoolDir }: Heard): string[] {
    const harm = openFilesIn(spoolDir).map((path) => `open: ${path}`);
    if (outcome instanceof Error) return harm;
    const { artifacts, stdout, stderr } = outcome;
    const names = artifacts.map(({ name }) => name);
    harm.push(...names.filter((name) => !isArtifactName(name)).map((name) => `unsafe: ${name}`));
    if (new Set(names).size < names.length) harm.push("a name twice");
    const kept = artifacts.filter(({ name }) => name !== "result.json");
    const bytes = kept.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    if (bytes > job.caps.artifactBytes) harm.push("too many bytes of artifacts");
    if (readdirSync(spoolDir).length > artifacts.length + 1) harm.push("files of nobody");
    const longest = Math.max(stdout.length, stderr.length);
    if (longest > job.caps.streamBytes + 100) harm.push("too many bytes of output");
    return harm;
  }

  function summaryOf({ outcome }: Heard): string {
    if (outcome instanceof Error) return outcome.name;
    return outcome.ending + (outcome.lostReason === null ? "" : ", with a reason");
  }

  describe("a supervisor that lies is not believed", () => {
    test.each(lies)("%s", async (_what, frames) => {
      const heard = await runAgainst(Buffer.concat([ready, ...frames, summary]));
      expect(harmIn(heard)).toEqual([]);
      const { outcome } = heard;
      const isRefused =
        outcome instanceof Error || (outcome.lostReason !== null && outcome.artifacts.length <= 1);
      expect(isRefused).toBe(true);
    });

    test.each([
      ["a name twice", [fileHead("x", 0), fileHead("x", 0)]],
      ["a result twice", [fileHead("result.json", 2, true), data("{}"), fileHead("r", 0, true)]],
      [
        "a result that is none, and its name again",
        [fileHead("r", 0, true), fileHead("result.json", 0)],
      ],
    ])("%s: the first is kept", async (_what, files) => {
      const heard = await runAgainst(Buffer.concat([ready, started, exit, ...files, summary]));
      expect(harmIn(heard)).toEqual([]);
      expect(heard.outcome).toMatchObject({
        ending: "exited",
        lostReason: expect.any(String) as string,
      });
    });

    test("more files than the cap", async () => {
      const files = Array.from({ length: 1100 }, (_, i) => fileHead(`f${i}`, 0));
      const heard = await runAgainst(Buffer.concat([ready, started, exit, ...files, summary]));
      expect(harmIn(heard)).toEqual([]);
      expect((heard.outcome as RunReport).lostReason).not.toBeNull();
      expect((heard.outcome as RunReport).artifacts.length).toBeLessThanOrEqual(1001);
    });

    test.each([
      ["another version", { python_version: "2.7.18", preload_errors: {} }],
      [
        "a version of a megabyte",
        { python_version: `3.${"9".repeat(9999)}.1`, preload_errors: {} },
      ],
      ["no errors", { python_version: "3.13.5" }],
    ])("a readiness with %s", async (_what, told) => {
      const { outcome } = await runAgainst(json("R", told));
      expect(outcome).toMatchObject({ name: "EngineError" });
    });
  });

  const honest = [
    ready,
    started,
    out,
    encodeFrame("E", Buffer.from("err")),
    exit,
    fileHead("result.json", 7, true),
    data('{"a":1}'),
    fileHead("x", 5),
    data("he"),
    data("llo"),
    summary,
  ];
  const whole = Buffer.concat(honest);
  /** Where the frames of `whole` begin, and its end. */
  const boundaries = honest.map((_, i) => Buffer.concat(honest.slice(0, i)).length);

  describe("a stream that ends in the middle", () => {
    test("at any byte leaves what was known, or an error if the code had not started", async () => {
      const [afterStart, afterExit] = [boundaries[2]!, boundaries[5]!];
      for (let at = 0; at < whole.length; at++) {
        const heard = await runAgainst(whole.subarray(0, at));
        expect(harmIn(heard)).toEqual([]);
        const known = at < afterExit ? "lost, with a reason" : "exited, with a reason";
        expect([at, summaryOf(heard)]).toEqual([at, at < afterStart ? "EngineError" : known]);
      }
    });
  });

  describe("a supervisor that stalls", () => {
    test.each([
      [0, "TimeoutError"],
      [1, "EngineError"],
      [2, "timeout, with a reason"],
      [3, "timeout, with a reason"],
      [4, "timeout, with a reason"],
      [5, "exited, with a reason"],
      [6, "exited, with a reason"],
      [8, "exited, with a reason"],
      [10, "exited, with a reason"],
    ])("after %i frames is given up: %s", async (frames, end) => {
      const heard = await runAgainst(whole.subarray(0, boundaries[frames]! + 3), "stalls");
      expect(harmIn(heard)).toEqual([]);
      expect(summaryOf(heard)).toBe(end);
    });

    test("by sending /output byte by byte is given up in the end", async () => {
      const { link, say } = fakeSupervisor();
      say(ready, started, exit, fileHead("x", 1000));
      const drip = setInterval(() => say(data("x")), 20);
      const conversation = await openConversation(link, never, patience);
      const spoolDir = mkdtempSync(join(spoolRoot, "run-"));
      const report = await conversation.run(job, { signal: never, spoolDir });
      clearInterval(drip);
      expect(report).toMatchObject({ artifacts: [], lostReason: "the supervisor went silent" });
    });
  });

  describe("a supervisor that floods", () => {
    test.each([
      ["readiness", Buffer.alloc(0), ready],
      ["starts", ready, started],
      ["empty output", Buffer.concat([ready, started]), encodeFrame("O")],
      ["output", Buffer.concat([ready, started]), out],
      ["empty files", Buffer.concat([ready, started, exit]), fileHead("x", 0)],
      ["results", Buffer.concat([ready, started, exit]), fileHead("r", 0, true)],
      ["empty data", Buffer.concat([ready, started, exit, fileHead("x", 1)]), encodeFrame("D")],
      ["garbage", ready, Buffer.alloc(1000, 0xff)],
    ])("with %s is cut off", async (_what, before, flood) => {
      const { link, output } = fakeSupervisor();
      const spoolDir = mkdtempSync(join(spoolRoot, "run-"));
      const piece = Buffer.concat(Array.from({ length: 1000 }, () => flood));
      let sentBytes = 0;
      const pour = (): void => {
        while (!output.destroyed && output.write(piece)) sentBytes += piece.length;
      };
      output.on("drain", pour);
      output.write(before);
      pour();
      const end = await openConversation(link, never, patient)
        .then((conversation) => conversation.run(job, { signal: never, spoolDir }))
        .catch((error: unknown) => error);
      link.destroy();
      expect(end).toSatisfy(
        (outcome) => outcome instanceof EngineError || (outcome as RunReport).lostReason !== null,
      );
      expect(openFilesIn(spoolDir)).toEqual([]);
      expect(sentBytes).toBeLessThan(20_000_000);
    });
  });

  const frameTypes = "RFSOEXADZJCIGK?".split("");
  const anyFrame = fc.oneof(
    fc.constantFrom(...honest),
    fc
      .tuple(fc.constantFrom(...frameTypes), fc.uint8Array({ maxLength: 200 }))
      .map(([type, payload]) => encodeFrame(type, payload)),
    fc
      .tuple(fc.constantFrom(...frameTypes), fc.jsonValue())
      .map(([type, value]) => json(type, value)),
    fc
      .record({ name: fc.string({ unit: "binary" }), size: fc.integer(), result: fc.boolean() })
      .map((head) => json("A", head)),
    fc
      .record({
        exit_status: fc.option(fc.integer()),
        exit_signal: fc.option(fc.integer()),
        wall_ms: fc.double(),
        ending: fc.constantFrom("exited", "timeout", "cancelled"),
      })
      .map(exitWith),
    fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
  );

  test("whatever a supervisor says, its run ends and harms no other", async () => {
    const prefixes = fc.constantFrom(0, 1, 2, 4, 5, 7, 8);
    await fc.assert(
      fc.asyncProperty(prefixes, fc.array(anyFrame, { maxLength: 12 }), async (n, frames) => {
        const said = Buffer.concat([...honest.slice(0, n), ...frames]);
        expect(harmIn(await runAgainst(said))).toEqual([]);
      }),
      { numRuns: 400 },
    );
  });
});
