import { mkdtempSync, readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { isArtifactName } from "./output/artifact-name.ts";
import { encodeFrame } from "./protocol/frames.ts";
import { openConversation, type Patience } from "./conversation/conversation.ts";
import {
  data,
  exit,
  fakeSupervisor,
  fileHead,
  job,
  json,
  ready,
  started,
  summary,
} from "./testing/fake-supervisor.ts";
import { exitWith, lies, out } from "./testing/lies.ts";
import { EngineError } from "./errors.ts";
import type { RunReport } from "./report.ts";

/** Code that has taken over its PID 1 can say what it likes: it must harm nobody but itself. */
const spoolRoot = tempFolder();

const never = new AbortController().signal;
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

function openFilesIn(folder: string): string[] {
  const links = readdirSync("/proc/self/fd").map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return "";
    }
  });
  return links.filter((link) => link.startsWith(folder));
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
    ["a version of a megabyte", { python_version: `3.${"9".repeat(9999)}.1`, preload_errors: {} }],
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
