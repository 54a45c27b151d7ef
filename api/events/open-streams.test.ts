import { expect, test } from "vitest";
import { Config } from "../../shared/config/config.ts";
import type { Deps } from "../deps.ts";
import { endingWith, openStreams } from "./open-streams.ts";

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
