import * as fc from "fast-check";
import { beforeEach, describe, expect, test } from "vitest";
import { concatBytes, decodeUtf8 } from "../../shared/bytes.ts";
import { type JobEvent, type StreamName, streamNames } from "../../shared/wire/executions.ts";
import { recordLog, recordResult } from "../agents/posts.ts";
import type { Deps } from "../deps.ts";
import { findExecution } from "../jobs/sql.ts";
import { success } from "../testing/scripted-agent.ts";
import { clientOf, findLeasedJob, leasedJob, storeJob, testDeps } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import {
  createEventReader,
  encodeAs,
  type EventCursor,
  follow,
  followSync,
  formatCursor,
  newCursor,
  parseCursor,
  splitText,
} from "./follow.ts";

describe("follow", () => {
  useStore();
  let deps: Deps;
  /** Reads that were made, by the first word of their key. */
  let reads: Record<string, number>;
  beforeEach(() => {
    const { shareRead, ...rest } = testDeps(store.db, store.folder, () => 10);
    reads = {};
    const counted: Deps["shareRead"] = (key, read) =>
      shareRead(key, () => {
        const [kind = ""] = key.split(" ");
        reads[kind] = (reads[kind] ?? 0) + 1;
        return read();
      });
    deps = { ...rest, shareRead: counted };
  });

  test("100 clients of a process that follow one job share their reads", async () => {
    const job = await leasedJob(store.db);
    const posts = 5;
    let arrived = 0;
    let everybody = Promise.withResolvers<void>();
    const clients = Array.from({ length: 100 }, async () => {
      const events: JobEvent[] = [];
      const { signal } = new AbortController();
      for await (const event of follow(clientOf(deps), job.id, undefined, signal)) {
        if (event === "idle") continue;
        events.push(event);
        if (event.event === "end") continue;
        arrived += 1;
        if (arrived % 100 === 0) everybody.resolve();
      }
      return events;
    });
    for (let n = 0; n < posts; n++) {
      await everybody.promise;
      everybody = Promise.withResolvers();
      const parts = [{ stream: "stdout" as const, offset: n, data_base64: btoa(String(n)) }];
      await recordLog(deps, await findLeasedJob(store.db, job.id), { parts });
    }
    await everybody.promise;
    await recordResult(deps, job, job.leaseId, { ...success, stdout_base64: btoa("01234") });
    for (const events of await Promise.all(clients)) {
      const texts = events.flatMap((event) => (event.event === "stdout" ? event.data.text : []));
      expect(texts.join("")).toBe("01234");
      expect(events.filter(({ event }) => event === "end")).toHaveLength(1);
    }
    // If each of the 100 clients read for itself, there would be at least 100 reads for each post.
    for (const times of Object.values(reads)) expect(times).toBeLessThan(10 * posts);
  });

  test("100 clients that come when a job has ended share the reads of its result", async () => {
    const job = await leasedJob(store.db);
    const text = "0123456789abcde\n".repeat(32 * 1024);
    await recordResult(deps, job, job.leaseId, { ...success, stdout_base64: btoa(text) });
    reads = {};
    const clients = Array.from({ length: 100 }, async () => {
      const { signal } = new AbortController();
      let read = "";
      for await (const event of follow(clientOf(deps), job.id, undefined, signal)) {
        if (event === "idle" || event.event !== "stdout") continue;
        read += event.data.text;
      }
      return read === text;
    });
    expect(new Set(await Promise.all(clients))).toEqual(new Set([true]));
    // The job, four parts, and the end of each stream: clients that fall behind read for themselves.
    const [times] = Object.values(reads);
    expect(times).toBeGreaterThanOrEqual(7);
    expect(times).toBeLessThan(10 * 7);
  });

  test("what a result shows comes after what it has written, also for who read the job just before", async () => {
    const job = await leasedJob(store.db, { results: "all" });
    const { id, leaseId } = job;
    const shown = { kind: "display" as const, main: true, data: { "text/plain": "7" } };
    const items = [{ ...shown, number: 1, stdout_at: 2, stderr_at: 0 }];
    await recordResult(deps, job, leaseId, { ...success, stdout_base64: btoa("1\n"), items });
    const readEvents = createEventReader(clientOf(deps), undefined);
    const seen: string[] = [];
    for (const state of [job, (await findExecution(store.db, id))!])
      for await (const { event } of readEvents(state)) seen.push(event);
    expect(seen).toEqual(["status", "stdout", "display", "end"]);
  });

  test("a fault other than an outage of the database ends the events of a synchronous job", async () => {
    const id = await storeJob(store.db, { mode: "sync" });
    const fault = new Error("not an outage");
    const broken: Deps = { ...deps, shareRead: () => Promise.reject(fault) };
    const events = followSync(clientOf(broken), id, false, new AbortController().signal);
    expect(await events.next()).toEqual({ done: false, value: "idle" });
    await expect(events.next()).rejects.toBe(fault);
    expect(await findExecution(store.db, id)).toMatchObject({ status: "cancelled" });
  });
});

describe("cursors", () => {
  useStore();
  let clock: number;
  let deps: Deps;
  beforeEach(() => {
    clock = 10;
    deps = testDeps(store.db, store.folder, () => clock);
  });

  /** The events after a cursor, or all. */
  async function eventsAfter(executionId: string, cursor?: string): Promise<JobEvent[]> {
    const execution = (await findExecution(store.db, executionId))!;
    const from = cursor === undefined ? undefined : parseCursor(cursor);
    return collect(createEventReader(clientOf(deps), from)(execution));
  }

  async function collect(events: AsyncIterable<JobEvent>): Promise<JobEvent[]> {
    const all: JobEvent[] = [];
    for await (const event of events) all.push(event);
    return all;
  }

  const textOf = (events: readonly JobEvent[], name: StreamName): string =>
    events.flatMap((event) => (event.event === name ? event.data.text : [])).join("");

  /** Bytes that make UTF-8 characters of every length, broken ones, and bytes that no character has. */
  const byte = fc.constantFrom(0x61, 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xff);
  const piece = fc.tuple(
    fc.constantFrom(...streamNames),
    fc.array(byte, { minLength: 1, maxLength: 4 }),
  );
  const written = fc.array(piece, { maxLength: 16 });

  test("from every cursor the rest follows, without loss or repeat: while the code runs, and from the record", async () => {
    await fc.assert(
      fc.asyncProperty(written, async (pieces) => {
        const job = await leasedJob(store.db);
        const streams: Record<StreamName, number[]> = { stdout: [], stderr: [] };
        const seen = await eventsAfter(job.id);
        const staying = createEventReader(clientOf(deps), undefined);
        const stayed = await collect(staying(job));
        for (const [stream, bytes] of pieces) {
          const offset = streams[stream].length;
          streams[stream].push(...bytes);
          const parts = [{ stream, offset, data_base64: base64(Uint8Array.from(bytes)) }];
          const execution = await findLeasedJob(store.db, job.id);
          await recordLog(deps, execution, { parts });
          seen.push(...(await eventsAfter(job.id, seen.at(-1)!.id)));
          stayed.push(...(await collect(staying(execution))));
        }
        for (const [i, { id }] of seen.entries())
          expect(textsOf(await eventsAfter(job.id, id))).toEqual(textsOf(seen.slice(i + 1)));

        const [stdout, stderr] = streamNames.map((name) => Uint8Array.from(streams[name]));
        const result = { stdout_base64: base64(stdout!), stderr_base64: base64(stderr!) };
        await recordResult(deps, job, job.leaseId, { ...success, ...result });
        seen.push(...(await eventsAfter(job.id, seen.at(-1)!.id)));
        const whole = [decodeUtf8(stdout!), decodeUtf8(stderr!)];
        stayed.push(...(await collect(staying((await findExecution(store.db, job.id))!))));
        expect(textsOf(stayed)).toEqual(whole);
        for (const [i, { id, event }] of seen.entries()) {
          if (event === "end") continue;
          const rest = await eventsAfter(job.id, id);
          expect(textsOf([...seen.slice(0, i + 1), ...rest])).toEqual(whole);
          expect(rest.filter((one) => one.event === "end")).toHaveLength(1);
        }
        expect(seen.filter((one) => one.event === "end")).toHaveLength(1);
      }),
      { numRuns: 20 },
    );
  });

  const textsOf = (events: readonly JobEvent[]): string[] =>
    streamNames.map((name) => textOf(events, name));

  const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

  test("a stream on which nothing happens gets a line every 10 s that clients ignore", async () => {
    const job = await leasedJob(store.db);
    const subscribe: Deps["notifier"]["subscribe"] = () => ({
      next: (ms) => ((clock += ms), Promise.resolve({ isWoken: false, forJob: false })),
      wants: () => {},
      settle: () => {},
      close: () => {},
    });
    const quiet: Deps = { ...deps, notifier: { ...deps.notifier, subscribe } };
    const idleAt: number[] = [];
    const ending = new AbortController();
    for await (const event of follow(clientOf(quiet), job.id, undefined, ending.signal)) {
      if (event === "idle" && idleAt.push(clock) === 4) ending.abort();
    }
    expect(idleAt).toEqual([10, 10_010, 20_010, 30_010]);
    const asText = (format: "sse" | "lines") => decodeUtf8(encodeAs(format)("idle"));
    expect([asText("sse"), asText("lines")]).toEqual([":\n\n", "\n"]);
  });
});

const both = fc.record({ stdout: fc.boolean(), stderr: fc.boolean() });
const cursors: fc.Arbitrary<EventCursor> = fc.record({
  attempt: fc.integer({ min: 1, max: 100_000 }),
  state: fc.constantFrom("new", "running", "lost", "ended"),
  withheld: both,
  truncated: both,
  stdout: fc.integer({ min: 0, max: 2 ** 40 }),
  stderr: fc.integer({ min: 0, max: 2 ** 40 }),
  items: fc.integer({ min: 0, max: 1000 }),
});

test("a cursor can be written as an id and read back, and an id fits into a header", () => {
  fc.assert(
    fc.property(cursors, (cursor) => {
      const id = formatCursor(cursor);
      expect(parseCursor(id)).toEqual(cursor);
      expect(id).toMatch(/^[\w-]+$/);
    }),
  );
});

test("any other text is refused as a cursor, and every offset is a whole number", () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      const { stdout, stderr } = parseCursor(text) ?? { stdout: 0, stderr: 0 };
      expect(Number.isSafeInteger(stdout + stderr)).toBe(true);
    }),
  );
  for (const text of [
    "",
    "1",
    "1-r-0-0",
    "1-r0-0",
    "1-r0--1-0",
    "1-r0-0-0 ",
    "1-rg-0-0",
    "1-r0-1e3-0",
  ])
    expect(parseCursor(text)).toBeUndefined();
  expect(parseCursor(formatCursor(newCursor(1)))).toEqual(newCursor(1));
});

/** Bytes of characters of every length, and of beginnings, ends and impossible bytes. */
const pieces = fc.oneof(
  fc
    .constantFrom("a", "é", "€", "😀", "\ufeff", "\0")
    .map((text) => new TextEncoder().encode(text)),
  fc
    .constantFrom(
      [0xc3],
      [0xe2, 0x82],
      [0xf0, 0x9f, 0x98],
      [0x80],
      [0xff],
      [0xe0, 0x80],
      [0xed, 0xa0],
      [0xf4, 0x90],
      [0xc0],
    )
    .map((bytes) => Uint8Array.from(bytes)),
  fc.uint8Array({ maxLength: 4 }),
);
const streams = fc.array(pieces, { maxLength: 12 }).map(concatBytes);

test("whatever the bytes and wherever they are cut, the texts joined are the decoded stream", () => {
  fc.assert(
    fc.property(streams, fc.array(fc.nat(20)), (bytes, cuts) => {
      let rest = new Uint8Array();
      let joined = "";
      let done = 0;
      for (const size of [...cuts, bytes.length]) {
        const split = splitText(rest, bytes.subarray(done, done + size));
        done = Math.min(bytes.length, done + size);
        joined += split.text;
        rest = new Uint8Array(split.rest);
      }
      expect(joined + decodeUtf8(rest)).toBe(decodeUtf8(bytes));
    }),
    { numRuns: 2000 },
  );
});

test("from every boundary that it stops at, the rest decodes to the same text", () => {
  fc.assert(
    fc.property(streams, (bytes) => {
      for (let cut = 0; cut <= bytes.length; cut++) {
        const { text, length, rest } = splitText(new Uint8Array(), bytes.subarray(0, cut));
        expect(rest.length).toBe(cut - length);
        expect(rest.length).toBeLessThan(4);
        expect(text + decodeUtf8(bytes.subarray(length))).toBe(decodeUtf8(bytes));
      }
    }),
    { numRuns: 2000 },
  );
});
