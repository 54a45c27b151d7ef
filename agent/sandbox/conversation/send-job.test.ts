import { Writable } from "node:stream";
import { expect, test } from "vitest";
import type { SandboxCall } from "../job.ts";
import { frameDecoder } from "../protocol/frames.ts";
import { fakeSupervisor, job } from "../testing/fake-supervisor.ts";
import { sendCall } from "./send-job.ts";

const never = new AbortController().signal;
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
    writev: (chunks, done) => note(Buffer.concat(chunks.map(({ chunk }) => chunk as Buffer)), done),
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
