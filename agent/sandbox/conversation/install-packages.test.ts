import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { encodeFrame, frameDecoder } from "../protocol/frames.ts";
import type { PipSource } from "../package-request.ts";
import { openConversation } from "./conversation.ts";
import type { Link } from "../protocol/link.ts";
import { EngineError } from "../errors.ts";

const json = (type: string, value: unknown): Buffer =>
  encodeFrame(type, Buffer.from(JSON.stringify(value)));
const ready = json("R", { python_version: "3.13.5", preload_errors: {} });
const ended = {
  exit_status: 0,
  exit_signal: null,
  out_of_memory: false,
  too_large: false,
  output: "",
};
const done = json("P", ended);
const number = Buffer.from([0, 0, 0, 1]);
const opened = encodeFrame("o", number);
const piece = encodeFrame("D", Buffer.from("x"));
const never = new AbortController().signal;

/** A supervisor that says what it is told to say once it hears of packages. */
async function open(...frames: Buffer[]) {
  const input = new PassThrough();
  const output = new PassThrough();
  const decode = frameDecoder();
  input.on("data", (chunk: Buffer) => {
    for (const { type } of decode(chunk)) if (type === "P") output.write(Buffer.concat(frames));
  });
  const link: Link = {
    input,
    output,
    diagnostics: () => "its last words",
    destroy: () => output.destroy(),
  };
  output.write(ready);
  return { conversation: await openConversation(link, never), output };
}
const pip = (more: Partial<PipSource> = {}): PipSource => ({
  pipEnv: {},
  files: {},
  serve: () => {},
  keep: null,
  maxBytes: null,
  ...more,
});
const requirements = ["a"];

test.each<[string, Buffer[]]>([
  ["a connection that was never opened", [encodeFrame("d", number)]],
  ["packages that nobody requested", [piece]],
  ["the end of the code", [json("X", {})]],
  ["an end of another shape", [json("P", {})]],
])("a supervisor that tells of %s has lost its container", async (_, frames) => {
  const { conversation } = await open(...frames, done);
  const installed = conversation.install({ requirements, from: pip() }, never);
  await expect(installed).rejects.toThrow(EngineError);
});

test("no connection is opened once packages are reported, nor for a job whose packages come with it", async () => {
  const kept: Uint8Array[] = [];
  const keep = async (bytes: Uint8Array): Promise<void> => void kept.push(bytes);
  const { conversation } = await open(piece, opened, done);
  const from = pip({ keep: async () => keep });
  await expect(conversation.install({ requirements, from }, never)).rejects.toThrow(EngineError);
  expect(kept).toHaveLength(1);

  async function* none() {}
  const other = await open(opened, done);
  const brought = other.conversation.install({ requirements, from: { kept: none } }, never);
  await expect(brought).rejects.toThrow(EngineError);
});

test("no connection is opened after the installation, and open ones are closed", async () => {
  let closed = false;
  const serve: PipSource["serve"] = (stream) => stream.on("close", () => (closed = true));
  const { conversation, output } = await open(opened, done);
  await conversation.install({ requirements, from: pip({ serve }) }, never);
  await new Promise(setImmediate);
  expect(closed).toBe(true);
  output.write(encodeFrame("o", Buffer.from([0, 0, 0, 2])));
  const job = {
    code: "",
    inputJson: "{}",
    timeoutMs: 1,
    caps: { streamBytes: 1, artifactBytes: 1 },
  };
  const run = conversation.run(job, { signal: never, spoolDir: "/nonexistent" });
  await expect(run).rejects.toThrow("a frame o out of turn");
});

test("an order can be used again if its container died", async () => {
  let kept: Uint8Array[] = [];
  const keep = async () => {
    kept = [];
    return async (bytes: Uint8Array): Promise<void> => void kept.push(bytes);
  };
  const from = pip({ keep });
  const first = await open(piece, piece);
  const installed = first.conversation.install({ requirements, from }, never);
  first.output.end();
  await expect(installed).rejects.toThrow(EngineError);
  const second = await open(piece, done);
  await second.conversation.install({ requirements, from }, never);
  expect(Buffer.concat(kept)).toEqual(piece);
});

test("an end of the stream ends it, and so does a signal", async () => {
  const { conversation, output } = await open();
  const installed = conversation.install({ requirements, from: pip() }, never);
  output.end();
  await expect(installed).rejects.toThrow("its last words");

  const other = await open();
  const giveUp = new AbortController();
  const given = other.conversation.install({ requirements, from: pip() }, giveUp.signal);
  giveUp.abort(new Error("given up"));
  await expect(given).rejects.toThrow("given up");
});

test.each([
  [
    { exit_status: 1, output: "Collecting a\nERROR: No matching distribution\n" },
    "ERROR: No matching distribution",
  ],
  [{ exit_status: null, exit_signal: 9 }, "Pip ended with exit code -9."],
  [{ out_of_memory: true }, "raise memory_limit"],
  [
    { exit_status: 1, output: "ERROR: Could not install: [Errno 28] No space left on device\n" },
    "[Errno 28] No space left on device\nThe packages do not fit",
  ],
])("a failure is reported: %j", async (end, words) => {
  const { conversation } = await open(json("P", { ...ended, ...end }));
  await expect(conversation.install({ requirements, from: pip() }, never)).rejects.toThrow(words);
});

test("packages that the agent's disk cannot hold are told the key to raise", async () => {
  const { conversation } = await open(json("P", { ...ended, exit_status: 1, too_large: true }));
  const installed = conversation.install({ requirements, from: pip({ maxBytes: 2 ** 20 }) }, never);
  await expect(installed).rejects.toThrow("1 MiB that the agent has");
});
