import { expect, test } from "vitest";
import { Output } from "./output.ts";

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
