import { describe, expect, test } from "vitest";
import { hostileCases } from "../testing/hostile.ts";

hostileCases(({ run }) => {
  // NUL in the source is 400: api/testing/contract/validation.ts.
  describe("hostile 14: sources that python3 runs", () => {
    test.each([
      ["a byte order mark", "\u{feff}print('ran')", "ran\n"],
      ["CR LF", "if 1:\r\n    print('ran')\r\n", "ran\n"],
      ["CR alone", "if 1:\r    print('ran')\r", "ran\n"],
      ["CR LF in a string", 'print(repr("""a\r\nb"""))', "'a\\nb'\n"],
      ["a line of a megabyte", `x = "${"y".repeat(1_000_000)}"; print(len(x))`, "1000000\n"],
      ["a form feed", "\fprint('ran')", "ran\n"],
      ["no code at all", "", ""],
    ])("%s", async (_what, code, out) => {
      expect(await run(code)).toMatchObject({ end: "succeeded - 0", out, err: "" });
    });

    test("a coding cookie decides how the bytes are read", async () => {
      const code = Buffer.from("# -*- coding: latin-1 -*-\nprint(ascii('\u00e4'))", "latin1");
      const { end, out } = await run("", { job: { code } });
      expect({ end, out }).toEqual({ end: "succeeded - 0", out: "'\\xe4'\n" });
    });

    test("a coding cookie that contradicts a byte order mark is a syntax error", async () => {
      expect((await run("\u{feff}# coding: latin-1\n")).end).toBe("failed syntax_error 1");
    });

    test.each(["no-such-codec", "rot13", "zlib"])("the coding cookie %s", async (codec) => {
      expect((await run(`# coding: ${codec}\nprint(1)`)).end).toBe("failed syntax_error 1");
    });

    test("nesting that the parser refuses", async () => {
      const { end } = await run("(".repeat(100_000));
      expect(end).toMatch(/^failed (syntax_error|runtime_error) 1$/);
    });

    test("NUL, if it gets past the API", async () => {
      expect((await run("print('a\0b')")).end).toBe("failed syntax_error 1");
    });
  });
});
