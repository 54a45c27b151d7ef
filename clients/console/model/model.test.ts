import { expect, test } from "vitest";
import { addressOf, hashOf, lineOf, routeOf } from "./address.ts";
import {
  formatAge,
  formatBytes,
  formatDuration,
  formatThings,
  formatTime,
  hoursIn,
  parseSize,
  pathOf,
  roundUp,
  sizeText,
} from "./numbers.ts";
import { Output, type Piece } from "./output.ts";
import { errorLine, failurePrompt, parseCsv, phasesOf, timesOf } from "./record.ts";
import { curl, executeCall, joinArguments, readInput, splitArguments } from "./submission.ts";

test.each([
  ["/console", "playground"],
  ["/console/", "playground"],
  ["/console/executions", "executions"],
  ["/console/executions/abc", "execution"],
  ["/console/sessions", "sessions"],
  ["/console/sessions/abc", "session"],
  ["/console/sessions/abc/more", "nowhere"],
  ["/console/queue", "queue"],
  ["/console/queue/more", "nowhere"],
  ["/console/nothing", "nowhere"],
  ["/console/executions/%E0%A4", "nowhere"],
])("%s is the view %s", (path, view) => {
  expect(routeOf(path, "").view).toBe(view);
});

test("an address can name a line of the output", () => {
  for (const hash of ["#L1", "#L120", "#E3"]) expect(hashOf(lineOf(hash)!)).toBe(hash);
  expect(lineOf("#E3")).toEqual({ stream: "stderr", number: 3 });
  expect(["", "#L0", "#x", "#L1x"].map(lineOf)).toEqual(Array<undefined>(4).fill(undefined));
});

test("an address has the parameters that have a value", () => {
  expect(addressOf("executions", { status: "failed", job_type: "", before: undefined })).toBe(
    "/console/executions?status=failed",
  );
  expect(addressOf("")).toBe("/console");
});

test.each([
  [0, "0 ms"],
  [999, "999 ms"],
  [1400, "1.4 s"],
  [9999, "10 s"],
  [59_600, "1 min"],
  [185_000, "3 min 5 s"],
  [7_800_000, "2 h 10 min"],
  [100 * 3_600_000, "4 d 4 h"],
])("%i ms are %s", (ms, text) => {
  expect(formatDuration(ms)).toBe(text);
});

test("ages and sizes have one unit", () => {
  const now = Date.parse("2026-11-22T10:00:00.000Z");
  expect(formatAge("2026-11-22T09:58:30.000Z", now)).toBe("1 min ago");
  expect(formatAge("2026-11-22T10:00:00.900Z", now)).toBe("now");
  expect([1023, 1024, 15_000, 5_000_000].map(formatBytes)).toEqual([
    "1023 B",
    "1.0 KiB",
    "15 KiB",
    "4.8 MiB",
  ]);
});

test("the line of an error is the last one of the submitted code", () => {
  const trace =
    'File "/code/main.py", line 8, in <module>\nFile "/code/main.py", line 4, in mean\nFile "/usr/lib/json.py", line 99';
  expect(errorLine(trace)).toBe(4);
  expect(errorLine("no traceback")).toBeUndefined();
});

test("the marked line of a cell is its own, not that of an earlier cell that it called", () => {
  const trace =
    'Traceback (most recent call last):\n  File "<cell 3>", line 2, in <module>\n  File "<cell 1>", line 9, in half';
  expect(errorLine(`Traceback (most recent call last):\n  File "<cell 1>", line 4\n${trace}`)).toBe(
    2,
  );
});

test("the input is a JSON object, or what is wrong with it", () => {
  expect(readInput(" ")).toEqual({ input: {} });
  expect(readInput('{"a": 1}')).toEqual({ input: { a: 1 } });
  expect(readInput("[1]")).toHaveProperty("problem", expect.stringContaining("JSON object"));
  expect(readInput("{")).toHaveProperty("problem", expect.stringContaining("not JSON"));
});

test("quoted fields of a table may hold separators, quotes and line feeds", () => {
  expect(parseCsv('a,b\r\n"x, ""y""","1\n2"\n', 10)).toEqual([
    ["a", "b"],
    ['x, "y"', "1\n2"],
  ]);
  expect(parseCsv("a;b\n1;2\n3;4", 2)).toEqual([
    ["a", "b"],
    ["1", "2"],
  ]);
  expect(parseCsv('a,"never closed', 10)).toEqual([["a", "never closed"]]);
});

test("phases follow each other from the submission", () => {
  const record = {
    created_at: "2026-11-22T10:00:00.000Z",
    started_at: "2026-11-22T10:00:01.000Z",
    ended_at: "2026-11-22T10:00:04.000Z",
    timing: { startup_ms: 900, dep_install_ms: 600, execution_ms: 2000, total_ms: 3000 },
  };
  expect(phasesOf(record, 0)).toEqual([
    { name: "Waited", startMs: 0, durationMs: 1000 },
    { name: "Start-up", startMs: 1000, durationMs: 300 },
    { name: "Packages", startMs: 1300, durationMs: 600 },
    { name: "Code", startMs: 1900, durationMs: 2000 },
    { name: "Files", startMs: 3900, durationMs: 100 },
  ]);
  const now = Date.parse("2026-11-22T10:00:03.000Z");
  const queued = { ...record, started_at: null, ended_at: null, timing: null };
  expect(phasesOf(queued, now)).toEqual([{ name: "Waited", startMs: 0, durationMs: 3000 }]);
});

test("the time of a lost attempt does not count as waiting", () => {
  const at = (s: number): string => new Date(s * 1000).toISOString();
  const attempts = [
    { attempt: 1, claimed_at: at(1), ended_at: at(181) },
    { attempt: 2, claimed_at: at(183), ended_at: at(187) },
  ];
  const record = { created_at: at(0), started_at: at(183), ended_at: at(187), attempts };
  expect(timesOf(record, 0)).toEqual({ waited: 3000, ran: 4000 });
  const again = { ...record, started_at: null, ended_at: null, attempts: attempts.slice(0, 1) };
  expect(timesOf(again, 182_000)).toEqual({ waited: 2000, ran: undefined });
  expect(phasesOf({ ...record, timing: null }, 0)).toEqual([
    { name: "Waited", startMs: 0, durationMs: 1000 },
    { name: "Attempt 1", startMs: 1000, durationMs: 180_000 },
    { name: "Waited", startMs: 181_000, durationMs: 2000 },
    { name: "Ran", startMs: 183_000, durationMs: 4000 },
  ]);
});

test("a line is drawn over the time of each value, with gaps where there is no value", () => {
  const step = (from: number, value: number) => ({ from, to: from + 10, value });
  expect(pathOf([step(100, 0), step(110, 5), step(130, 10)], 100, 10)).toBe(
    "M0 100H10V50H20M30 0H40",
  );
  expect([0, 1, 3, 11, 51, 200].map(roundUp)).toEqual([1, 1, 5, 20, 100, 200]);
  const day = new Date(2026, 10, 25).getTime();
  const hours = (n: number) => day + n * 3_600_000;
  expect(hoursIn(hours(1.25), hours(3.5))).toEqual([hours(2), hours(3)]);
  expect(hoursIn(hours(-20), hours(28))).toEqual([-18, -12, -6, 0, 6, 12, 18, 24].map(hours));
});

test("the command sends the job, quoted for a shell", () => {
  const job = executeCall({
    code: "print('it\\'s')",
    input: { a: [true, null] },
    jobType: "science",
    args: ["-v"],
    stdin: "",
    timeout: 90,
    files: [{ name: "a.csv", file_id: "1" }],
  });
  const command = curl("http://x", job, true);
  expect(command).toContain(`"code": "print('\\''it\\\\'\\''s'\\'')"`);
  expect(command).toContain("Bearer $AIRLOCK_KEY");
  expect(command).toContain('"timeout": 90');
  expect(job).toEqual({
    path: "/execute",
    body: {
      code: "print('it\\'s')",
      input_data: { a: [true, null] },
      args: ["-v"],
      files: [{ name: "a.csv", file_id: "1" }],
      job_type: "science",
      timeout: 90,
    },
  });
});

test.each<[string, string[]]>([
  ["", []],
  ["-v  report.csv", ["-v", "report.csv"]],
  [`'a b' "c\\"d" e\\ f ''`, ["a b", 'c"d', "e f", ""]],
  [`--name='Ada L'`, ["--name=Ada L"]],
])("the arguments %s are %j, and are read again as they are written", (text, args) => {
  expect(splitArguments(text)).toEqual({ args });
  expect(splitArguments(joinArguments(args))).toEqual({ args });
});

test("an argument whose quote is not closed is refused", () => {
  expect(splitArguments("a 'b")).toEqual({ problem: "The arguments have a ' that is not closed." });
});

test("a failure as a prompt has the code, the error and the end of the output", () => {
  const prompt = failurePrompt({
    status: "failed",
    exit_code: 1,
    error: { type: "name_error", message: "NameError: x", phase: "execution" },
    code: "x\n",
    input: "{}",
    stdout: "",
    stderr: `${"y".repeat(5000)}\nNameError: x\n`,
  });
  expect(prompt).toContain(
    "failed, exit code 1 with name_error in the phase execution: NameError: x.",
  );
  expect(prompt).toContain("```python\nx\n```");
  expect(prompt).toContain("[…]\n");
  expect(prompt).not.toContain("input, /input/data.json");
});

test("a failure of a compiler as a prompt has the language and the compiler's words", () => {
  const failure = {
    status: "failed" as const,
    exit_code: null,
    error: { type: "compile_error" as const, message: "no", phase: "execution" as const },
    code: "int main(\n",
    input: "{}",
    stdout: "",
    stderr: "",
    compile: { exit_code: 1, stdout: "", stderr: "no\nnever\n", ms: 3 },
  };
  const prompt = failurePrompt({ ...failure, language: "c" });
  expect(prompt).toMatch(/^This c program ended failed with compile_error/);
  expect(prompt).toContain("The program:\n\n```c\nint main(\n```");
  expect(prompt).toContain("What the compiler wrote:\n\n```\nno\nnever\n```");
  expect(failurePrompt({ ...failure, command: ["make", "a b"] })).toMatch(
    /^This program, run as make 'a b', ended failed/,
  );
});

test.each([
  [0, "0 lines"],
  [1, "1 line"],
  [999, "999 lines"],
  [1204, "1,204 lines"],
  [1_048_576, "1,048,576 lines"],
])("%d things are counted as %s", (n, text) => {
  expect(formatThings(n, "line")).toBe(text);
});

test("a time that is none is shown as it is", () => {
  expect(formatTime("yesterday")).toBe("yesterday");
});

test.each([
  ["0", 0, "0 B"],
  ["1000", 1000, "1 KB"],
  ["1001 b", 1001, "1001 B"],
  ["10g", 10 * 1024 ** 3, "10 GiB"],
  ["10 GiB", 10 * 1024 ** 3, "10 GiB"],
  ["1.5 MiB", 1536 * 1024, "1536 KiB"],
  ["500 MB", 500_000_000, "500 MB"],
  ["2 tb", 2e12, "2 TB"],
])("%j is %d bytes, and is shown exactly", (text, bytes, shown) => {
  expect(parseSize(text)).toBe(bytes);
  expect(parseSize(sizeText(bytes))).toBe(bytes);
  expect(sizeText(bytes)).toBe(shown);
});

test.each(["", "x", "-1", "10 gigs", "1e9", "1 GiBB"])("%j is no size", (text) => {
  expect(parseSize(text)).toBeUndefined();
});

const textOf = (output: Output, columns = 80): string[] =>
  output
    .rows(0, 100, columns)
    .map(({ stream, pieces }) => `${stream} ${pieces.map(({ text }) => text).join("")}`);

test("a line that comes in pieces is one line, also while the other stream writes", () => {
  const output = new Output();
  output.append("stdout", "one\ntw");
  output.append("stderr", "oops\n");
  output.append("stdout", "o\nthree");
  expect(textOf(output)).toEqual(["stdout one", "stdout two", "stderr oops", "stdout three"]);
});

test("a long line takes several rows, and a row knows its line", () => {
  const output = new Output();
  output.append("stdout", "abcdefghij\nkl\n");
  expect(output.rowCount(4)).toBe(4);
  expect(textOf(output, 4)).toEqual(["stdout abcd", "stdout efgh", "stdout ij", "stdout kl"]);
  expect(output.rows(1, 2, 4).map(({ number, isContinued }) => [number, isContinued])).toEqual([
    [1, true],
    [1, true],
  ]);
  expect(output.rows(3, 5, 4).map(({ number }) => number)).toEqual([2]);
});

test("a line that grows moves those after it", () => {
  const output = new Output();
  output.append("stdout", "ab");
  output.append("stderr", "x\n");
  expect(output.rowCount(4)).toBe(2);
  output.append("stdout", "cdef\n");
  expect(output.rowCount(4)).toBe(3);
  expect(textOf(output, 4)).toEqual(["stdout abcd", "stdout ef", "stderr x"]);
});

test("colours go on over lines of the same stream", () => {
  const output = new Output();
  output.append("stdout", "\x1b[32mgreen\n");
  output.append("stderr", "plain\n");
  output.append("stdout", "green too\n");
  expect(output.rows(0, 3, 80).map(({ pieces }) => pieces[0]?.look.fg)).toEqual([2, undefined, 2]);
});

test("a search finds every place, whatever its case", () => {
  const output = new Output();
  output.append("stdout", "no\nError: an error\n\x1b[31mERR\x1b[0mOR\n");
  expect(output.find("error", 80)).toEqual([1, 1, 2]);
  expect(output.find("error", 8)).toEqual([1, 2, 3]);
  expect(output.find("", 80)).toEqual([]);
});

test("a line has the time of its first piece", () => {
  const output = new Output();
  output.append("stdout", "one\ntw", 1000);
  output.append("stdout", "o\n", 2000);
  output.append("stderr", "x\n", 3000);
  expect(output.hasTimes).toBe(true);
  expect(output.rows(0, 10, 80).map(({ at }) => at)).toEqual([1000, 1000, 3000]);
});

test("a row holds what fits: characters of two cells and of none are counted, and none is cut in two", () => {
  const output = new Output();
  output.append("stdout", "日本語abc\n😀😀😀\ne\u0301e\u0301e\u0301e\u0301\n");
  expect(textOf(output, 4)).toEqual([
    "stdout 日本",
    "stdout 語ab",
    "stdout c",
    "stdout 😀😀",
    "stdout 😀",
    "stdout e\u0301e\u0301e\u0301e\u0301",
  ]);
  expect(output.find("c", 4)).toEqual([2]);
  expect(output.bytes).toBe(39);
});

test("a tab goes to the next stop of eight, also after colours", () => {
  const output = new Output();
  output.append("stdout", "ab\tc\n\x1b[31mab\x1b[0m\tc\n日\tc\n");
  expect(textOf(output)).toEqual(["stdout ab      c", "stdout ab      c", "stdout 日      c"]);
  expect(output.rowCount(8)).toBe(6);
});

test("its text is what is seen of it", () => {
  const output = new Output();
  expect(output.text).toBe("");
  output.append("stdout", "\u001b[32mone\u001b[0m\ntw");
  expect(output.text).toBe("one\ntw");
  output.append("stderr", "oops\n");
  expect(output.text).toBe("one\ntw\noops\n");
});

test("a line has the same number and place, in whatever order the streams are read", () => {
  const watched = new Output();
  watched.append("stderr", "oops\n");
  watched.append("stdout", "one\ntwo\n");
  watched.append("stderr", "again\n");
  const read = new Output();
  read.append("stdout", "one\ntwo\n");
  read.append("stderr", "oops\nagain\n");
  const linked = { stream: "stderr", number: 2 } as const;
  const found = [watched, read].map((output) => {
    const [row] = output.rows(output.rowOf(linked, 80)!, 1, 80);
    return { text: row?.pieces[0]?.text, number: row?.number };
  });
  expect(found).toEqual([
    { text: "again", number: 2 },
    { text: "again", number: 2 },
  ]);
  expect(read.rowOf({ stream: "stderr", number: 3 }, 80)).toBeUndefined();
});

function piecesOf(...written: string[]): Piece[] {
  const output = new Output();
  for (const piece of written) output.append("stdout", piece);
  return output.rows(0, 100, 8192).flatMap(({ pieces }) => pieces);
}

const seen = (...written: string[]): string => {
  const output = new Output();
  for (const piece of written) output.append("stdout", piece);
  return output.text;
};

test("colours and weights are taken from SGR sequences", () => {
  expect(piecesOf("a\x1b[1;31mb\x1b[22mc\x1b[0md")).toEqual([
    { text: "a", look: {} },
    { text: "b", look: { bold: true, fg: 1 } },
    { text: "c", look: { bold: false, faint: false, fg: 1 } },
    { text: "d", look: {} },
  ]);
});

test.each([
  ["38;5;9", 9],
  ["38;5;196", "#ff0000"],
  ["38;5;255", "#eeeeee"],
  ["38;2;1;2;300", "#0102ff"],
  ["97", 15],
])("SGR %s is a colour of text", (code, fg) => {
  expect(piecesOf(`\x1b[${code}mx`)[0]?.look.fg).toBe(fg);
});

test.each([
  ["\x1b[2Kgone\x1b]0;title\x07 stays", "gone stays"],
  ["10%\r50%\r100%", "100%"],
  ["windows\r", "windows"],
  ["downloading 10%\r\x1b[Kdone", "done"],
  ["\r\x1b[2Kpip  50%\r\x1b[2Kpip 100%", "pip 100%"],
  ["\x1b[32mgreen\x1b[0m\r", "green"],
  ["abcdef\rxy", "xycdef"],
  ["abc\b\bX", "aXc"],
  ["abc\x1b[2Dx\x1b[1Cy", "axcy"],
  ["tab\t|\rT", "Tab     |"],
  ["日本\ra", "a 本"],
  ["日本語\x1b[4Dx", "日x 語"],
  ["e\u0301e\rx", "xe"],
  ["bell\x07 and nul\x00", "bell and nul"],
  ["\x1b[?25lhidden cursor\x1b[?25h", "hidden cursor"],
  ["\x1b[31", ""],
  ["a\n\nb\n", "a\n\nb\n"],
  ["one 10%\ntwo 10%\n\x1b[2Aone 99%\n\x1b[Ktwo\nthree", "one 99%\ntwo\nthree"],
  ["a\nb\nc\x1b[1F\x1b[2Kx\x1b[1Ey", "a\nx\ny"],
  ["a\nb\nc\n\x1b[3A\x1b[Jdone\n", "done\n\n"],
  ["up\x1b[999999999A and on", "up and on"],
  ["abc\x1b[2D\x1b[1Kx", " xc"],
])("%j looks like %j", (written, text) => {
  expect(seen(written)).toBe(text);
  // In whatever pieces it comes.
  expect(seen(...written.split(""))).toBe(text);
});

test("cursor movements of one stream leave the lines of the other", () => {
  const output = new Output();
  output.append("stdout", "bar 1\n");
  output.append("stderr", "warning\n");
  output.append("stdout", "\x1b[A\x1b[2Kbar 2\n");
  expect(output.text).toBe("bar 2\nwarning\n");
});

test("a line of 4 MB that comes in pieces and is written over costs what its pieces cost", () => {
  const output = new Output();
  const piece = "x".repeat(4096);
  for (let i = 0; i < 1000; i++) output.append("stdout", piece);
  for (let i = 0; i < 1000; i++) output.append("stdout", "\b|");
  expect(output.rowCount(4096)).toBe(1000);
});

test("no sequence makes a line longer than a screen", () => {
  expect(seen("far\x1b[999999999Cx").length).toBeLessThan(5000);
});
