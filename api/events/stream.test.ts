import { getEventListeners } from "node:events";
import { beforeEach, expect, test } from "vitest";
import type { JobEvent } from "../../shared/wire/client/events.ts";
import type { Deps } from "../deps.ts";
import { store, useStore } from "../testing/use-store.ts";
import { testDeps } from "../testing/test-deps.ts";
import { eventStream } from "./stream.ts";

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
  const reader = eventStream(waiting, "lines", follow, [process.signal]).getReader();
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
    const reader = eventStream(deps, "lines", idleUntil, [process.signal]).getReader();
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
  await eventStream(waiting, "lines", whileOpen, [gone]).cancel();
  await ended.promise;
  expect([isOpen, getEventListeners(gone, "abort")]).toEqual([false, []]);
});
