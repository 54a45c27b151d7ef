import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { encodeFrame, type Frame, FrameError } from "./frames.ts";
import { askForNext } from "./rearm.ts";

const verified = ["processes", "files", "ipc", "sockets", "interpreter"];
const frame = (value: unknown, type = "N"): Frame => ({
  type,
  payload: Buffer.from(JSON.stringify(value)),
});

/** Asks a supervisor that answers with a frame, and says what it was sent. */
async function ask(answer: Frame) {
  const input = new PassThrough();
  const output = new PassThrough();
  const link = { input, output, diagnostics: () => "", destroy: () => output.destroy() };
  const problem = await askForNext(link, () => Promise.resolve(answer), 10_000);
  return { problem, sent: input.read() as Buffer };
}

test("a container that was wiped and looked over is good for one more job", async () => {
  const { problem, sent } = await ask(frame({ problem: null, verified }));
  expect(problem).toBeNull();
  expect(sent).toEqual(encodeFrame("N"));
});

test.each([
  ["says that it is not clean", frame({ problem: "a socket is left", verified: [] }), "a socket"],
  ["did not look at everything", frame({ problem: null, verified: ["files"] }), "processes, ipc"],
  ["sends output instead", frame({ problem: null, verified }, "O"), "a frame O out of turn"],
  ["sends something else", frame({ clean: true }), "not in the protocol"],
])("a supervisor that %s is not", async (_what, answer, reason) => {
  expect((await ask(answer)).problem).toContain(reason);
});

test("one that says nothing is given up", async () => {
  const { promise, reject } = Promise.withResolvers<Frame>();
  const link = {
    input: new PassThrough(),
    output: new PassThrough(),
    diagnostics: () => "",
    destroy: () => reject(new FrameError("the stream broke")),
  };
  expect(await askForNext(link, () => promise, 10)).toBe("the stream broke");
});
