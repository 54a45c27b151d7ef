import { expect, test } from "vitest";
import { reportWith } from "../testing/engine.ts";
import { classify, describeLeftOut, type RunReport } from "./verdict.ts";

function verdictOf(changes: Partial<RunReport>) {
  const { error, ...verdict } = classify(reportWith(changes));
  return { ...verdict, error: error && `${error.type} in ${error.phase}` };
}

test("code that ends well succeeds", () => {
  expect(verdictOf({})).toEqual({
    status: "succeeded",
    exitCode: 0,
    error: null,
    phaseAtExit: "completed",
  });
});

test("a timeout has no exit code", () => {
  expect(verdictOf({ ending: "timeout", exitStatus: null, exitSignal: "SIGKILL" })).toEqual({
    status: "timeout",
    exitCode: null,
    error: "execution_timeout in execution",
    phaseAtExit: "execution",
  });
});

test("a cancelled run has the exit code 143, even if the code ended by itself", () => {
  expect(verdictOf({ ending: "cancelled", exitStatus: 0 })).toEqual({
    status: "cancelled",
    exitCode: 143,
    error: "cancelled in execution",
    phaseAtExit: "execution",
  });
});

test("a job that is cancelled before its code started ended in the start-up phase", () => {
  expect(verdictOf({ ending: "cancelled", started: false, exitStatus: null })).toMatchObject({
    error: "cancelled in startup",
    phaseAtExit: "startup",
  });
});

test.each([
  ["the code", { ending: "exited", exitStatus: null, exitSignal: "SIGKILL" }],
  ["the whole container", { ending: "lost", exitStatus: null, lostReason: "the stream broke" }],
] as const)("the kernel's OOM killer takes %s", (_whom, changes) => {
  expect(verdictOf({ ...changes, outOfMemory: true })).toEqual({
    status: "oom",
    exitCode: 137,
    error: "oom in execution",
    phaseAtExit: "failed",
  });
});

test.each([
  [{ exitStatus: 1, stderr: "a.c:1: no\nmore" }, "a.c:1: no"],
  [{ exitStatus: 2, stdout: "from stdout" }, "from stdout"],
  [{ exitStatus: 2 }, "The compiler exited with status 2."],
  [{ exitStatus: null }, "The compiler was killed: it may need a larger memory_limit."],
  [{ exitStatus: null, timedOut: true }, /^The compiler was stopped at its time limit/],
])("a compiler that ended with %o is the job's failure", (changes, words) => {
  const well = { exitStatus: 0, timedOut: false, stdout: "", stderr: "", wallMs: 1 };
  expect(classify(reportWith({ compiled: well })).status).toBe("succeeded");
  const report = reportWith({ compiled: { ...well, ...changes }, exitStatus: 1 });
  expect(classify(report)).toMatchObject({
    status: "failed",
    exitCode: null,
    error: { type: "compile_error", message: expect.stringMatching(words) as string },
  });
});

test("a container that died without a report is the service's failure", () => {
  expect(verdictOf({ ending: "lost", exitStatus: null, lostReason: "x" })).toEqual({
    status: "failed",
    exitCode: null,
    error: "internal_error in execution",
    phaseAtExit: "failed",
  });
});

test.each([
  ["SIGSEGV", 139, "segfault"],
  ["SIGABRT", 134, "abort"],
  ["SIGFPE", 136, "arithmetic_error"],
  ["SIGBUS", 135, "bus_error"],
  ["SIGPIPE", 141, "pipe_error"],
  ["SIGKILL", 137, "killed"],
  ["SIGTERM", 143, "killed"],
  ["SIGINT", 130, "killed"],
  ["SIG40", 168, "killed"],
])("%s", (exitSignal, exitCode, type) => {
  expect(verdictOf({ exitStatus: null, exitSignal })).toMatchObject({
    status: "failed",
    exitCode,
    error: `${type} in execution`,
  });
});

test.each([1, 3, 137, 143])("exit status %i alone is a runtime_error", (exitStatus) => {
  expect(classify(reportWith({ exitStatus }))).toMatchObject({
    status: "failed",
    exitCode: exitStatus,
    error: { type: "runtime_error", message: `The code exited with status ${exitStatus}.` },
  });
});

test("an end that nobody observed is unknown", () => {
  expect(verdictOf({ exitStatus: null })).toMatchObject({ error: "unknown in execution" });
});

const builtin = (...names: string[]) => names.map((name) => `builtins.${name}`);

test.each([
  ["syntax_error", builtin("SyntaxError")],
  ["syntax_error", builtin("TabError", "IndentationError", "SyntaxError")],
  ["import_error", builtin("ModuleNotFoundError", "ImportError")],
  ["type_error", builtin("TypeError")],
  ["value_error", builtin("ValueError")],
  ["key_error", builtin("KeyError", "LookupError")],
  ["index_error", builtin("IndexError", "LookupError")],
  ["attribute_error", builtin("AttributeError")],
  ["name_error", builtin("UnboundLocalError", "NameError")],
  ["file_not_found", builtin("FileNotFoundError", "OSError")],
  ["file_error", builtin("IsADirectoryError", "OSError")],
  ["file_error", builtin("NotADirectoryError", "OSError")],
  ["os_error", builtin("OSError")],
  ["os_error", builtin("FileExistsError", "OSError")],
  ["recursion_error", builtin("RecursionError", "RuntimeError")],
  ["assertion_error", builtin("AssertionError")],
  ["division_error", builtin("ZeroDivisionError", "ArithmeticError")],
  ["overflow_error", builtin("OverflowError", "ArithmeticError")],
  ["encoding_error", builtin("UnicodeDecodeError", "UnicodeError", "ValueError")],
  ["json_error", ["json.decoder.JSONDecodeError", "builtins.ValueError"]],
  ["permission", builtin("PermissionError", "OSError")],
  ["network_error", builtin("ConnectionRefusedError", "ConnectionError", "OSError")],
  ["network_error", ["socket.gaierror", "builtins.OSError"]],
  ["network_error", ["urllib.error.URLError", "builtins.OSError"]],
  ["network_timeout", builtin("TimeoutError", "OSError")],
  ["network_timeout", ["socket.timeout", "builtins.OSError"]],
  ["runtime_error", builtin("RuntimeError")],
  ["runtime_error", builtin("MemoryError")],
  ["runtime_error", ["__main__.MyError", ...builtin("Exception")]],
  ["key_error", ["__main__.MyKeyError", ...builtin("KeyError", "LookupError")]],
  ["runtime_error", ["__main__.ValueError", ...builtin("Exception")]],
  [
    "json_error",
    ["requests.exceptions.JSONDecodeError", "builtins.OSError", "json.decoder.JSONDecodeError"],
  ],
])("%s for %o", (type, names) => {
  const mro = [...names, "builtins.Exception", "builtins.BaseException", "builtins.object"];
  expect(verdictOf({ exitStatus: 1, exception: { mro, message: "m" } })).toMatchObject({
    status: "failed",
    exitCode: 1,
    error: `${type} in execution`,
  });
});

test.each([
  [{ mro: ["builtins.KeyError"], message: "'a'" }, "KeyError: 'a'"],
  [{ mro: ["__main__.Mine"], message: "" }, "Mine"],
  [{ mro: ["json.decoder.JSONDecodeError"], message: "x" }, "json.decoder.JSONDecodeError: x"],
])("the message is the last line of the traceback", (exception, message) => {
  expect(classify(reportWith({ exitStatus: 1, exception })).error?.message).toBe(message);
});

test("code that fills a folder in memory is told which limit to raise", () => {
  const message = "[Errno 28] No space left on device: '/tmp/x'";
  const exception = { mro: builtin("OSError"), message };
  expect(classify(reportWith({ exitStatus: 1, exception })).error?.message).toBe(
    `OSError: ${message}. If a write failed: /output, /tmp and /dev/shm are part of the job's memory, so raise memory_limit of its job type.`,
  );
});

test("an exception that did not end the code does not count", () => {
  const exception = { mro: builtin("ValueError"), message: "" };
  expect(verdictOf({ exception })).toMatchObject({ status: "succeeded" });
});

const invalid = { kind: "invalid", problem: "it holds an array, not an object" } as const;
const tooMany = { reason: "too_many_files", count: 7, names: ["a", "b"] } as const;

test("an invalid result.json fails code that ended well", () => {
  expect(classify(reportWith({ result: invalid }))).toMatchObject({
    status: "failed",
    exitCode: 0,
    error: {
      type: "json_error",
      message: "/output/result.json is not usable: it holds an array, not an object.",
    },
  });
});

test("so does an /output over its limits", () => {
  expect(classify(reportWith({ skipped: [tooMany] }))).toMatchObject({
    status: "failed",
    exitCode: 0,
    error: {
      type: "file_error",
      message: "/output goes over its limits, the rest is kept. too many files: 7 (a, b).",
    },
  });
});

test("links and other entries that cannot be artifacts do not, and are named", () => {
  const skipped = [
    { reason: "not_a_regular_file", count: 1, names: ["link"] },
    { reason: "unsafe_name", count: 2, names: ["a\\u202eb", "c\\n"] },
  ] as const;
  expect(verdictOf({ skipped })).toMatchObject({ status: "succeeded" });
  const report = reportWith({ skipped: [...skipped, tooMany] });
  expect(describeLeftOut(report, classify(report))).toBe(
    "Left out of the artifacts: no regular file: 1 (link); unsafe name: 2 (a\\u202eb, c\\n).",
  );
});

test("entries over the limits are named once: in the error, or beside that of the code", () => {
  const over = reportWith({ skipped: [tooMany] });
  expect(describeLeftOut(over, classify(over))).toBeUndefined();
  for (const ending of ["exited", "timeout"] as const) {
    const failed = reportWith({ ending, exitStatus: 1, skipped: [tooMany] });
    expect(describeLeftOut(failed, classify(failed))).toBe(
      "Left out of the artifacts: too many files: 7 (a, b).",
    );
  }
});

test("the code's own error comes first", () => {
  expect(verdictOf({ exitStatus: 3, result: invalid, skipped: [tooMany] })).toMatchObject({
    error: "runtime_error in execution",
  });
});

test("an /output that could not be collected for want of memory is the code's failure", () => {
  expect(verdictOf({ lostReason: "the supervisor ended", outOfMemory: true })).toMatchObject({
    status: "oom",
    exitCode: 137,
    error: "oom in execution",
  });
});

test("an /output that could not be collected is the service's failure", () => {
  expect(verdictOf({ lostReason: "the stream broke" })).toMatchObject({
    status: "failed",
    exitCode: 0,
    error: "internal_error in execution",
  });
});
