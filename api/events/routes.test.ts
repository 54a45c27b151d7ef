import { getEventListeners } from "node:events";
import { beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { Config } from "../../shared/config/config.ts";
import { takeBytes } from "../../shared/turns.ts";
import type { JobEvent } from "../../shared/wire/executions.ts";
import { recordLog, recordResult, releaseLease } from "../agents/posts.ts";
import type { Deps } from "../deps.ts";
import { findExecution } from "../jobs/sql.ts";
import { success } from "../testing/scripted-agent.ts";
import {
  clientOf,
  findLeasedJob,
  leasedJob,
  leaseJob,
  openTempStore,
  testDeps,
} from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { encodeAs } from "./follow.ts";
import { endingWith, eventStream, openStreams, readLog } from "./routes.ts";

describe("stream", () => {
  useStore();
  let deps: Deps;
  beforeEach(() => {
    deps = testDeps(store.db, store.folder, Date.now);
  });

  async function* idleOnce(): AsyncGenerator<JobEvent | "idle"> {
    yield "idle";
  }

  /** Idle until its signal aborts. */
  async function* idleUntil(signal: AbortSignal): AsyncGenerator<JobEvent | "idle"> {
    while (!signal.aborted) yield "idle";
  }

  const finish = {
    read: async (reader: ReadableStreamDefaultReader) => {
      while (!(await reader.read()).done);
    },
    hangUp: async (reader: ReadableStreamDefaultReader) => reader.cancel(),
  };

  test.each([
    ["that was read to its end", idleOnce, finish.read],
    ["whose client hung up", idleUntil, finish.hangUp],
  ])("a stream %s is no longer known to the signal of the process", async (_, follow, end) => {
    const ended = Promise.withResolvers<void>();
    const waiting: Deps = { ...deps, waitUntil: (work) => void work.then(() => ended.resolve()) };
    const process = new AbortController();
    const reader = eventStream(waiting, encodeAs("lines"), follow, [process.signal]).getReader();
    await reader.read();
    expect(getEventListeners(process.signal, "abort")).toHaveLength(1);
    await end(reader);
    await ended.promise;
    expect(getEventListeners(process.signal, "abort")).toEqual([]);
  });

  test.each([0, 1])(
    "the signal of the process ends a stream of which %i events were read",
    async (n) => {
      const process = new AbortController();
      const reader = eventStream(deps, encodeAs("lines"), idleUntil, [process.signal]).getReader();
      for (let read = 0; read < n; read++) await reader.read();
      process.abort();
      await finish.read(reader);
      expect(getEventListeners(process.signal, "abort")).toEqual([]);
    },
  );

  test("the events of a client that has gone before the stream are ended, though nobody reads them", async () => {
    const ended = Promise.withResolvers<void>();
    const waiting: Deps = { ...deps, waitUntil: (work) => void work.then(() => ended.resolve()) };
    let isOpen = false;
    async function* whileOpen(): AsyncGenerator<JobEvent | "idle"> {
      isOpen = true;
      try {
        yield "idle";
      } finally {
        isOpen = false;
      }
    }
    const gone = AbortSignal.abort();
    // As the server does where there is no connection any more.
    await eventStream(waiting, encodeAs("lines"), whileOpen, [gone]).cancel();
    await ended.promise;
    expect([isOpen, getEventListeners(gone, "abort")]).toEqual([false, []]);
  });

  test("events that are ended while they wait for their part of a turn run to their end, and are closed", async () => {
    const states: string[] = [];
    async function* events(): AsyncGenerator<JobEvent | "idle"> {
      states.push("open");
      try {
        yield "idle";
      } finally {
        states.push("closed");
      }
    }
    // The turn has no bytes left, so the first event waits.
    await takeBytes(1024 * 1024);
    const reader = eventStream(deps, encodeAs("lines"), events, []).getReader();
    const first = reader.read();
    // It is asked for within some microtasks; a new turn would come with a timer.
    for (let n = 0; n < 10; n++) await Promise.resolve();
    await reader.cancel();
    expect(await first).toEqual({ done: true, value: undefined });
    await vi.waitUntil(() => states.length === 2);
    expect(states).toEqual(["open", "closed"]);
  });
});

const config = Config.parse({ max_event_streams: 2 });
const onNode = { config, processMetrics: {} } as Deps;

test("each key has a limit of its own, and clients without a key share one", () => {
  const streams = openStreams(onNode);
  for (const key of ["a", undefined]) {
    const end = streams.begin(key);
    streams.begin(key);
    expect(() => streams.begin(key)).toThrow("max_event_streams");
    end();
    end();
    streams.begin(key);
    expect(() => streams.begin(key)).toThrow("max_event_streams");
  }
});

test("a process that keeps no state between requests counts no streams", () => {
  const streams = openStreams({ ...onNode, processMetrics: undefined });
  for (let n = 0; n < 10; n++) expect(() => streams.begin("a")).not.toThrow();
});

test.each([
  [
    "is read to its end",
    async (events: AsyncGenerator) => {
      while (!(await events.next()).done);
    },
  ],
  [
    "is left",
    async (events: AsyncGenerator) => {
      await events.next();
      await events.return(undefined);
    },
  ],
])("a stream that %s is no longer open", async (_, use) => {
  const streams = openStreams(onNode);
  async function* events() {
    yield 1;
    yield 2;
  }
  await use(endingWith(events(), streams.begin("a")));
  streams.begin("a");
  expect(() => streams.begin("a")).not.toThrow();
});

test("a log has the output of the last attempt: nothing between two attempts, at the end that of the result", async () => {
  const store = await openTempStore();
  onTestFinished(() => store.close());
  const deps = testDeps(store.db, store.folder, () => 10);
  const job = await leasedJob(store.db);
  const find = async () => (await findExecution(store.db, job.id))!;
  const read = async () => {
    const { size, open } = await readLog(clientOf(deps), await find(), "stdout");
    return [size, await new Response(open(0, size)).text()];
  };
  const write = async (text: string) => {
    const parts = [{ stream: "stdout" as const, offset: 0, data_base64: btoa(text) }];
    await recordLog(deps, await findLeasedJob(store.db, job.id), { parts });
  };
  await write("first");
  expect(await read()).toEqual([5, "first"]);
  const error = { type: "docker_error", message: "", phase: "startup" } as const;
  await releaseLease(deps, job.leaseId, { error, agent_stops: false });
  expect(await read()).toEqual([0, ""]);
  deps.now = () => 100_000;
  const again = await leaseJob(store.db, { now: 100_000 });
  await write("second");
  expect(await read()).toEqual([6, "second"]);
  const result = { ...success, stdout_base64: btoa("second\n") };
  await recordResult(deps, again, again.leaseId, result);
  expect(await read()).toEqual([7, "second\n"]);
});
