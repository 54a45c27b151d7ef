import { expect, test } from "vitest";
import { NotFoundError, type Problem } from "../typescript/src/index.ts";
import { exitCode, ExitError, explainFailure, interruptible } from "./exit.ts";
import {
  bytes,
  duration,
  layOut,
  parseBytes,
  parseDuration,
  parsePairs,
  parseSince,
} from "./terminal.ts";

const asIs = (_: string, text: string): string => text;
const columns = [{ title: "ID" }, { title: "SIZE", right: true }, { title: "NAME" }];

test("a table lines up its columns, and cuts the last one at the terminal's width", () => {
  const rows = [
    ["a", "1", "short"],
    ["bbb", "1000", "a name that is longer than the terminal"],
  ];
  expect(layOut(columns, rows, 24, asIs)).toEqual([
    "ID   SIZE  NAME",
    "a       1  short",
    "bbb  1000  a name that …",
  ]);
  expect(layOut(columns, rows, undefined, asIs)[2]).toMatch(/terminal$/);
});

test("a row takes several lines if its ids would wrap", () => {
  const row = ["01a2065e-06ad-72d0-a76c-6bfbfa633bc7", "1 kB", "results of a long name"];
  expect(layOut(columns, [row], 40, asIs)).toEqual([
    "ID",
    "  SIZE  NAME",
    "01a2065e-06ad-72d0-a76c-6bfbfa633bc7",
    "  1 kB  results of a long name",
  ]);
  expect(layOut(columns, [row], 20, asIs).at(-1)).toBe("  1 kB  results of …");
});

test("untrusted text cannot move the cursor", () => {
  expect(layOut(columns, [["a", "1", "x\u001b[2J\ny"]], undefined, asIs)[1]).toBe(
    "a      1  x [2J y",
  );
});

test("times, sizes and pairs are shown and read", () => {
  expect([340, 4200, 180_000, 9e6, 2e8].map(duration)).toEqual([
    "340 ms",
    "4.2 s",
    "3 min",
    "3 h",
    "2 d",
  ]);
  expect([0, 999, 1500, 2e9].map(bytes)).toEqual(["0 B", "999 B", "1.5 kB", "2.0 GB"]);
  expect(parseDuration("90s", "--expires")).toBe(90_000);
  expect(() => parseDuration("90", "--expires")).toThrow("--expires");
  expect(
    ["5", "48.2 MB", "10GB", "10g", "1 KiB"].map((text) => parseBytes(text, "--size")),
  ).toEqual([5, 48_200_000, 1e10, 10 * 1024 ** 3, 1024]);
  expect(() => parseBytes("1 heap", "--size")).toThrow("--size");
  expect(parseSince("10m", 1_000_000)).toBe(400_000);
  expect(parseSince("2026-11-22T00:00:00Z")).toBe(Date.UTC(2026, 10, 22));
  expect(parsePairs(["a=b=c"], "-m")).toEqual({ a: "b=c" });
  expect(() => parsePairs(["a"], "-m")).toThrow("name=value");
});

test("the hint where to look depends on the command, not on the words of the refusal", () => {
  const detail = "Any words.";
  const error = new NotFoundError(404, detail, {
    problem: { code: "not_found", detail, correlation_id: "c" } as Problem,
  });
  expect(explainFailure(error, "airlock ps")).toBe(
    "Any words. airlock ps lists those that do.\n(not_found · c)",
  );
  expect(explainFailure(error)).toBe("Any words.\n(not_found · c)");
});

test.each(["SIGINT", "SIGHUP"] as const)(
  "a %s that arrives twice at the same time, as Ctrl-C does under npm, is one interrupt",
  async (name) => {
    const work = async (signal: AbortSignal) => {
      process.emit(name);
      process.emit(name);
      return signal.reason as unknown;
    };
    const reason = await interruptible(work);
    expect(reason).toBeInstanceOf(ExitError);
    expect(reason).toMatchObject({ code: exitCode.interrupted, message: "interrupted" });
    expect(process.listenerCount(name)).toBe(0);
  },
);
