import * as fc from "fast-check";
import { beforeEach, expect, test } from "vitest";
import { decodeUtf8 } from "../../shared/bytes.ts";
import type { JobEvent } from "../../shared/wire/client/events.ts";
import { streamNames, type StreamName } from "../../shared/wire/output.ts";
import { recordLog, recordResult } from "../agents/lease-posts.ts";
import type { Deps } from "../deps.ts";
import { parseCursor } from "../domain/event-cursor.ts";
import { claimNext } from "../store/jobs/claim.ts";
import { findExecution } from "../store/jobs/read.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { success } from "../testing/scripted-agent.ts";
import { newExecution, offers } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { clientOf, testDeps } from "../testing/test-deps.ts";
import { encodeEvent } from "./encode.ts";
import { follow } from "./follow.ts";
import { createEventReader } from "./event-reader.ts";

useStore();
let clock: number;
let deps: Deps;
beforeEach(() => {
  clock = 10;
  deps = testDeps(store.db, store.folder, () => clock);
});

async function running() {
  const execution = newExecution();
  await submitExecution(store.db, execution, 100);
  const terms = { agentId: "a", expiresAt: 1_000_000, now: 1 };
  const [job] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
  return job!;
}

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
      const job = await running();
      const streams: Record<StreamName, number[]> = { stdout: [], stderr: [] };
      const seen = await eventsAfter(job.id);
      const staying = createEventReader(clientOf(deps), undefined);
      const stayed = await collect(staying(job));
      for (const [stream, bytes] of pieces) {
        const offset = streams[stream].length;
        streams[stream].push(...bytes);
        const parts = [{ stream, offset, data_base64: base64(Uint8Array.from(bytes)) }];
        const execution = (await findExecution(store.db, job.id))!;
        await recordLog(deps, execution, { parts });
        seen.push(...(await eventsAfter(job.id, seen.at(-1)!.id)));
        stayed.push(...(await collect(staying(execution))));
      }
      for (const [i, { id }] of seen.entries())
        expect(textsOf(await eventsAfter(job.id, id))).toEqual(textsOf(seen.slice(i + 1)));

      const [stdout, stderr] = streamNames.map((name) => Uint8Array.from(streams[name]));
      const result = { stdout_base64: base64(stdout!), stderr_base64: base64(stderr!) };
      await recordResult(deps, job, job.leaseId!, { ...success, ...result });
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
  const job = await running();
  const subscribe: Deps["notifier"]["subscribe"] = () => ({
    next: (ms) => Promise.resolve(void (clock += ms)),
    passOn: () => {},
    close: () => {},
  });
  const quiet: Deps = { ...deps, notifier: { ...deps.notifier, subscribe } };
  const idleAt: number[] = [];
  const ending = new AbortController();
  for await (const event of follow(clientOf(quiet), job.id, undefined, ending.signal)) {
    if (event === "idle" && idleAt.push(clock) === 4) ending.abort();
  }
  expect(idleAt).toEqual([10, 10_010, 20_010, 30_010]);
  const asText = (format: "sse" | "lines") => decodeUtf8(encodeEvent(format, "idle"));
  expect([asText("sse"), asText("lines")]).toEqual([":\n\n", "\n"]);
});
