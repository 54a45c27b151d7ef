import { expect, test } from "vitest";
import type { Piece } from "./ansi.ts";
import { Output } from "./output.ts";

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
