import { expect, test } from "vitest";
import { parseAnsi, stripAnsi } from "./ansi.ts";

test("colours and weights are taken from SGR sequences, and go on to the next line", () => {
  const { pieces, end } = parseAnsi("a\x1b[1;31mb\x1b[22mc");
  expect(pieces).toEqual([
    { text: "a", look: {} },
    { text: "b", look: { bold: true, fg: 1 } },
    { text: "c", look: { fg: 1 } },
  ]);
  expect(parseAnsi("d\x1b[0me", end).pieces).toEqual([
    { text: "d", look: { fg: 1 } },
    { text: "e", look: {} },
  ]);
});

test.each([
  ["38;5;9", 9],
  ["38;5;196", "#ff0000"],
  ["38;5;255", "#eeeeee"],
  ["38;2;1;2;300", "#0102ff"],
  ["97", 15],
])("SGR %s is a colour of text", (code, fg) => {
  expect(parseAnsi(`\x1b[${code}mx`).pieces[0]?.look.fg).toBe(fg);
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
  ["日本\ra", "a本"],
  ["bell\x07 and nul\x00", "bell and nul"],
  ["\x1b[31", "31"],
])("of %j, a person sees %j", (line, text) => {
  expect(stripAnsi(line)).toBe(text);
  const pieces = parseAnsi(line).pieces.map((piece) => piece.text);
  expect(pieces.join("")).toBe(text);
});

test("no sequence makes a line longer than a screen", () => {
  expect(stripAnsi("far\x1b[999999999Cx").length).toBeLessThan(5000);
});
