import { describe, expect, test } from "vitest";
import { Refusal } from "../facade.ts";
import { frame, lastFrame, readFrame } from "./connect.ts";
import { readEvents } from "./events.ts";
import { lineOf, programOf, resultOf } from "./execute.ts";
import { belowHome, toOurs, toTheirs } from "./paths.ts";
import { endOf } from "./process.ts";

describe("frames of Connect", () => {
  const message = { process: { cmd: "é".repeat(200) } };

  test("have flags, a length in bytes, and JSON", () => {
    const bytes = frame(message);
    expect([...bytes.subarray(0, 5)]).toEqual([0, 0, 0, 1, 166]);
    expect(JSON.parse(readFrame(bytes))).toEqual(message);
    expect([...lastFrame()]).toEqual([2, 0, 0, 0, 2, 123, 125]);
  });

  test.each([
    ["too short", new Uint8Array(4)],
    ["cut", frame(message).subarray(0, -1)],
    ["with more behind it", new Uint8Array([...frame(message), 0])],
    ["compressed", frame(message, 1)],
  ])("one that is %s is refused", (_how, bytes) => {
    expect(() => readFrame(bytes)).toThrow(Refusal);
  });
});

test("a line is ASCII JSON: clients decode it in pieces and end lines at U+2028 and U+0085", () => {
  const value = { text: "é\u2028\u0085😀\n" };
  const text = new TextDecoder().decode(lineOf(value));
  expect(text).toMatch(/^[\x20-\x7e]+\n$/);
  expect(JSON.parse(text)).toEqual(value);
});

test.each([
  ["1", null, { code: "1" }],
  ["", undefined, { code: "\n" }],
  ["exit 3", "bash", { command: ["bash", "-c", "exit 3"] }],
  ["!pip list\n!ls\n", "python", { command: ["bash", "-c", "pip list\nls\ntrue"] }],
  ["!ls\n1", "python", { code: "!ls\n1" }],
])("the code %j in %s is %j", (code, language, program) => {
  expect(programOf(code, language)).toEqual(program);
});

test("a result has its forms by their names, JSON as a value", () => {
  const data = {
    "text/plain": "'it''",
    "image/png": "iVBORw==",
    "application/json": '{"a":1}',
    "x/y": "",
  };
  expect(resultOf({ main: true, data })).toEqual({
    type: "result",
    is_main_result: true,
    text: "it'",
    png: "iVBORw==",
    json: { a: 1 },
    extra: { "x/y": "" },
  });
  const broken = { "text/plain": '"it\'s"', "application/json": "{" };
  expect(resultOf({ main: false, data: broken })).toMatchObject({ text: '"it\'s"', json: "{" });
});

test.each([
  ["a.txt", "/output/a.txt", "/home/user/a.txt"],
  ["/home/user/x/../a", "/output/a", "/home/user/a"],
  ["/home/user", "/output", "/home/user"],
  ["/home/users/a", "/home/users/a", "/home/users/a"],
  ["../../../tmp//t", "/tmp/t", "/tmp/t"],
])("the path %s is %s here, and %s to the client", (path, ours, theirs) => {
  expect(toOurs(path)).toBe(ours);
  expect(toTheirs(ours)).toBe(theirs);
  expect(belowHome(path)).toBe(ours.startsWith("/output/") ? ours.slice(8) : undefined);
});

test("events keep all characters of their data, unknown ones are left out, and a stream that stops before the end of the call is an error", async () => {
  const job_id = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";
  const data = { job_id, attempt: 1, at: "2026-01-01T00:00:00.000Z", text: "a\u2028b" };
  const text = `: wait\n\nid: 1\nevent: new\ndata: {}\n\nid: 2\nevent: stdout\ndata: ${JSON.stringify(data)}\n\n`;
  const events = readEvents(new Blob([text]).stream());
  expect(await events.next()).toEqual({ done: false, value: { event: "stdout", data } });
  await expect(events.next()).rejects.toThrow("before the call had ended");
});

describe("a command", () => {
  const ended = (
    exit_code: number | null,
    type?: "runtime_error" | "killed" | "execution_timeout" | "cancelled",
  ) => {
    const error = type ? { type, message: "why", phase: "execution" } : null;
    const parts = endOf({ exit_code, error } as unknown as Parameters<typeof endOf>[0]);
    return parts.map((part) => JSON.parse(new TextDecoder().decode(part.subarray(5))) as unknown);
  };

  test("that exits says so, whatever its status", () => {
    const end = { exitCode: 3, exited: true, status: "exit status 3", error: "exit status 3" };
    expect(ended(3, "runtime_error")).toEqual([{ event: { end } }, {}]);
    expect(ended(0)).toEqual([
      { event: { end: { exitCode: 0, exited: true, status: "exit status 0" } } },
      {},
    ]);
  });

  test("that a signal ends has the exit code -1", () => {
    const end = { exitCode: -1, exited: false, status: "signal: 9", error: "signal: 9" };
    expect(ended(137, "killed")).toEqual([{ event: { end } }, {}]);
  });

  test("that has no end is an error of the stream", () => {
    expect(ended(null, "execution_timeout")).toEqual([
      { error: { code: "deadline_exceeded", message: "why" } },
    ]);
    for (const exitCode of [143, null]) {
      expect(ended(exitCode, "cancelled")).toEqual([
        { error: { code: "canceled", message: "why" } },
      ]);
    }
  });
});
