import { expect, test } from "vitest";
import { Output, type Piece } from "./output.ts";

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
