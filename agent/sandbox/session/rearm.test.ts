import { expect, test } from "vitest";
import { type Frame, FrameError } from "../protocol/frames.ts";
import { waitForNext } from "./rearm.ts";

const frame = (value: unknown, type = "N"): Frame => ({
  type,
  payload: Buffer.from(JSON.stringify(value)),
});

/** Why a supervisor that sends this frame is not ready for one more job. */
function problemOf(answer: Frame): Promise<string | null> {
  return waitForNext({ destroy: () => {} }, () => Promise.resolve(answer), 10_000);
}

test("a container that was wiped and checked can run one more job", async () => {
  expect(await problemOf(frame({ problem: null }))).toBeNull();
});

test.each([
  ["says that it is not clean", frame({ problem: "a socket is left" }), "a socket"],
  ["sends output instead", frame({ problem: null }, "O"), "a frame O out of turn"],
  ["sends something else", frame({ clean: true }), "not in the protocol"],
])("a supervisor that %s is not", async (_what, answer, reason) => {
  expect(await problemOf(answer)).toContain(reason);
});

test("a container that says nothing is given up", async () => {
  const { promise, reject } = Promise.withResolvers<Frame>();
  const link = { destroy: () => reject(new FrameError("the stream broke")) };
  expect(await waitForNext(link, () => promise, 10)).toBe("the stream broke");
});
