import { describe, expect, test } from "vitest";
import { bytecodes } from "./bytecode.ts";

describe("stored bytecode", () => {
  const code = { program: Buffer.from("code"), later: Buffer.from("more") };

  test("belongs to one image, until it is dropped", () => {
    const kept = bytecodes();
    expect(kept.of("a")).toBeNull();
    kept.keep("a", code);
    expect(kept.of("a")).toEqual({
      program: Uint8Array.from(code.program),
      later: Uint8Array.from(code.later),
    });
    expect(kept.of("b")).toBeNull();
    kept.keep("a", null);
    expect(kept.of("a")).toBeNull();
  });

  test("is the newest, up to a limit", () => {
    const kept = bytecodes(2);
    for (const image of ["a", "b", "a", "c"]) kept.keep(image, code);
    expect(["a", "b", "c"].filter((image) => kept.of(image) !== null)).toEqual(["a", "c"]);
  });
});
