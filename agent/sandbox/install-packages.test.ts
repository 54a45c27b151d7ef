import type { Duplex } from "node:stream";
import { expect, test } from "vitest";
import { fakeSupervisor, job, json, ready } from "../testing/fake-supervisor.ts";
import { openConversation } from "./conversation.ts";
import { encodeFrame, type Frame, frameDecoder, FrameError } from "./frames.ts";
import { explainPipFailure, openTunnel } from "./install-packages.ts";
import type { PipSource } from "./job.ts";
import { EngineError } from "./sandbox.ts";

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
  const { link, output, heard, say } = fakeSupervisor();
  link.input.on("data", () => {
    if (heard.splice(0).includes("P")) say(...frames);
  });
  say(ready);
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
  await expect(installed).rejects.toThrow("Traceback: its own");

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
  [{ exit_status: null, exit_signal: 9 }, "It ended with exit code -9."],
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

test.each([
  [
    "the lines marked as errors",
    "Looking in links: /x\nERROR: Could not find a version\nERROR: No matching distribution found for a\n",
    "ERROR: Could not find a version\nERROR: No matching distribution found for a",
  ],
  [
    "of retries the last",
    "WARNING: Retrying (Retry(total=1)) after X\nWARNING: Retrying (Retry(total=0)) after Y\nERROR: No matching",
    "WARNING: Retrying (Retry(total=0)) after Y\nERROR: No matching",
  ],
  [
    "an index that is not trusted",
    "Could not fetch URL https://i/: There was a problem confirming the ssl certificate\nERROR: No",
    "Could not fetch URL https://i/: There was a problem confirming the ssl certificate\nERROR: No",
  ],
  [
    "of an exception its last line",
    "ERROR: Exception:\nTraceback (most recent call last):\n  File x\nOSError: disk full\n",
    "ERROR: Exception:\nOSError: disk full",
  ],
  [
    "else the last line",
    "one\n/usr/bin/python3: No module named pip\n\n",
    "/usr/bin/python3: No module named pip",
  ],
  [
    "of apt its errors",
    "Err:1 http://deb.debian.org/debian trixie InRelease\n  403  deb.debian.org:80 has a private address: add it to the agent's pip_hosts\nE: Failed to fetch http://deb.debian.org/x  403  deb.debian.org:80 has a private address: add it to the agent's pip_hosts\nReading package lists...\n",
    "E: Failed to fetch http://deb.debian.org/x  403  deb.debian.org:80 has a private address: add it to the agent's pip_hosts",
  ],
  [
    "of npm the reason, not its advice or the name of its log",
    "npm warn x\nnpm error code E404\nnpm error 404 Not Found - GET https://r/nope - Not found\nnpm error 404\nnpm error 404  The requested resource 'nope@*' could not be found\nnpm error 404\nnpm error 404 Note that you can also install from a\nnpm error A complete log of this run can be found in: /tmp/.npm/_logs/x.log\n",
    "npm error code E404\nnpm error 404 Not Found - GET https://r/nope - Not found\nnpm error 404  The requested resource 'nope@*' could not be found",
  ],
  [
    "of a long list of versions the end",
    `ERROR: Ignored the following versions that require a different python version: ${"1.21.2 Requires-Python >=3.7,<3.11; ".repeat(9)}1.26.0 Requires-Python >=3.9,<3.13\nERROR: Could not find a version that satisfies the requirement numpy==9 (from versions: ${"1.3.0, ".repeat(150)}2.3.5)\nERROR: No matching distribution found for numpy==9\n`,
    `ERROR: Ignored the following versions that require a different python version: …; 1.21.2 Requires-Python >=3.7,<3.11; 1.26.0 Requires-Python >=3.9,<3.13\nERROR: Could not find a version that satisfies the requirement numpy==9 (from versions: …${", 1.3.0".repeat(13)}, 2.3.5)\nERROR: No matching distribution found for numpy==9`,
  ],
  [
    "of a short list of versions all",
    "ERROR: Could not find a version that satisfies the requirement a==9 (from versions: 1.0, 1.1)",
    "ERROR: Could not find a version that satisfies the requirement a==9 (from versions: 1.0, 1.1)",
  ],
  ...[
    "ERROR: Could not fetch https://i/: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
    "npm error code SELF_SIGNED_CERT_IN_CHAIN\nnpm error request to https://r/a failed, reason: self-signed certificate in certificate chain",
    "E: Failed to fetch https://m/x  Certificate verification failed: The certificate is NOT trusted.",
    "curl: (60) SSL certificate problem: unable to get local issuer certificate",
  ].map((said) => [
    "of a certificate the key that helps",
    said,
    `${said}\nA certificate is not trusted: set the agent's pip_ca_file.`,
  ]),
  ["of silence the exit code", "\n", "It ended with exit code 3."],
])("%s", (_what, log, words) => {
  expect(explainPipFailure(log, 3)).toBe(words);
});

test("a message is short enough to read", () => {
  const log = `ERROR: ${"x".repeat(5000)}\n`.repeat(9);
  expect(explainPipFailure(log, 1).length).toBeLessThanOrEqual(2000);
});

const windowBytes = 256 * 1024;

function id(number: number, rest: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(number);
  return Buffer.concat([head, rest]);
}
const count = (bytes: number): Buffer => id(bytes);
const settle = () => new Promise(setImmediate);

/** A tunnel whose other end is the test's; `said` are the frames that came out of it. */
function world() {
  const said: Frame[] = [];
  const streams: Duplex[] = [];
  const decode = frameDecoder();
  const tunnel = openTunnel(
    (frame) => said.push(...decode(frame)),
    (stream) => streams.push(stream),
  );
  const take = (type: string, payload: Buffer): void =>
    tunnel.take({ type, payload: frameDecoder()(encodeFrame(type, payload))[0]!.payload });
  const bytesOf = (type: string): number =>
    said
      .filter((frame) => frame.type === type)
      .reduce((sum, { payload }) => sum + payload.length - 4, 0);
  const passedOn = (): number =>
    said
      .filter(({ type }) => type === "w")
      .reduce((sum, { payload }) => sum + payload.readUInt32BE(4), 0);
  return { tunnel, said, streams, take, bytesOf, passedOn };
}

test("a connection sends, receives and ends", async () => {
  const { streams, take, said } = world();
  take("o", id(1));
  const [stream] = streams;
  const heard: Buffer[] = [];
  stream!.on("data", (chunk: Buffer) => heard.push(chunk));
  take("d", id(1, Buffer.from("question")));
  stream!.end("answer");
  await settle();
  take("e", id(1));
  await settle();
  expect(Buffer.concat(heard).toString()).toBe("question");
  expect(
    said
      .filter(({ type }) => type !== "w")
      .map(({ type, payload }) => [type, payload.toString("latin1", 4)]),
  ).toEqual([
    ["d", "answer"],
    ["e", ""],
    ["x", ""],
  ]);
});

test("data that nobody reads is not passed on, so that the other end stops", async () => {
  const { streams, take, passedOn } = world();
  take("o", id(1));
  const piece = Buffer.alloc(64 * 1024);
  for (let n = 0; n < windowBytes / piece.length; n += 1) take("d", id(1, piece));
  await settle();
  expect(passedOn()).toBeLessThanOrEqual(piece.length);
  expect(() => take("d", id(1, Buffer.alloc(windowBytes)))).toThrow(FrameError);
  streams[0]!.on("data", () => {});
  await settle();
  expect(passedOn()).toBeGreaterThanOrEqual(windowBytes);
});

test("no more is sent than the other end has room for", async () => {
  const { streams, take, bytesOf } = world();
  take("o", id(1));
  let isDone = false;
  streams[0]!.write(Buffer.alloc(windowBytes + 10), () => (isDone = true));
  await settle();
  expect([bytesOf("d"), isDone]).toEqual([windowBytes, false]);
  take("w", id(1, count(4)));
  expect(bytesOf("d")).toBe(windowBytes + 4);
  take("w", id(1, count(1000)));
  await settle();
  expect([bytesOf("d"), isDone]).toEqual([windowBytes + 10, true]);
});

test("either side may end a connection, and closing the tunnel ends all", async () => {
  const { tunnel, streams, take, said } = world();
  for (const number of [1, 2, 3]) take("o", id(number));
  take("x", id(1));
  streams[1]!.destroy();
  await settle();
  expect(said.map(({ type, payload }) => [type, payload.readUInt32BE(0)])).toEqual([["x", 2]]);
  tunnel.close();
  await settle();
  expect(streams.every(({ destroyed }) => destroyed)).toBe(true);
  // Frames that arrive after the end are not an error.
  for (const number of [1, 2, 3]) take("d", id(number, Buffer.from("late")));
});

test.each<[string, (take: (type: string, payload: Buffer) => void) => void]>([
  ["no complete number", (take) => take("o", Buffer.alloc(3))],
  ["an open connection opened again", (take) => take("o", id(1))],
  ["a connection with a number out of order", (take) => take("o", id(7))],
  ["a connection that was never opened", (take) => take("d", id(2, Buffer.from("x")))],
  ["an unknown type", (take) => take("q", id(1))],
  ["a window beyond its size", (take) => take("w", id(1, count(1)))],
  [
    "more data than its window",
    (take) => [1, 2].forEach(() => take("d", id(1, Buffer.alloc(200_000)))),
  ],
  ["too many connections", (take) => Array.from({ length: 64 }, (_, n) => take("o", id(n + 2)))],
])("a frame with %s is refused", (_, lie) => {
  const { take } = world();
  take("o", id(1));
  expect(() => lie(take)).toThrow(FrameError);
});
