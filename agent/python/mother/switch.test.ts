import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { loadModules, sources } from "../program.ts";
import { switchDecoder } from "../../fork/switch.ts";

/** What the mother's end of the stream writes to its stdout while `what` runs. */
function written(what: string) {
  const probe = `
import os, switch
out = switch.Switch(0, 1)
${what}
while not out.empty:
    out.write()`;
  const program = loadModules({ ...sources(["mother/switch"]), probe });
  const bytes = execFileSync("python3", ["-I", "-S", "-c", program], { maxBuffer: 2 ** 26 });
  return switchDecoder()(bytes).map(({ number, type, payload }) => [number, type, payload.length]);
}

test("control frames overtake data, and the last frame of a job does not", () => {
  const what = `
out.put_data(1, b"x" * 32768)
out.put_data(2, b"y" * 10)
out.put_last(1, b"G", b"{}")
out.put(3, b"C", b"1234")`;
  expect(written(what)).toEqual([
    [3, "C", 4],
    [1, "D", 32_768],
    [2, "D", 10],
    [1, "G", 2],
  ]);
});

test("it is full before it holds much, and never waits for its reader", () => {
  const what = `
count = 0
while not out.full:
    out.put_data(1, b"x" * 32768)
    count += 1
assert count < 20, count`;
  expect(written(what).length).toBeGreaterThan(10);
});
