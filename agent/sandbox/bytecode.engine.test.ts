import { afterAll, describe, expect, test } from "vitest";
import { bytecodes } from "./bytecode.ts";
import { openSession } from "./session/session.ts";
import { type HostLink, type HostOptions, startOnHost } from "./testing/host-link.ts";
import { findPythons } from "./testing/pythons.ts";

const started: HostLink[] = [];
afterAll(() => started.forEach((link) => link.destroy()));

describe.each(findPythons())("Python $version", (python) => {
  function open(options: HostOptions) {
    const link = startOnHost(python, options);
    started.push(link);
    return openSession(link, AbortSignal.timeout(60_000));
  }

  test.each([false, true])(
    "bytecode that one supervisor made serves the next (reuse: %s)",
    async (isReused) => {
      const first = await open({ isReused });
      expect(first.bytecode?.length).toBeGreaterThan(10_000);
      const next = await open({ isReused, bytecode: first.bytecode });
      expect(next.bytecode).toBeNull();
      expect(next.pythonVersion).toBe(python.version);
    },
  );

  test("bytecode of another Python is refused before any of it is read", async () => {
    const { bytecode } = await open({});
    const foreign = Uint8Array.from(bytecode!);
    foreign[0]! ^= 1;
    await expect(open({ bytecode: foreign })).rejects.toThrow("bytecode of another Python");
  });
});

describe("the bytecodes kept", () => {
  const code = Buffer.from("code");

  test("are each of one image, until it is dropped", () => {
    const kept = bytecodes();
    expect(kept.of("a")).toBeNull();
    kept.keep("a", code);
    expect(kept.of("a")).toEqual(Uint8Array.from(code));
    expect(kept.of("b")).toBeNull();
    kept.keep("a", null);
    expect(kept.of("a")).toBeNull();
  });

  test("are the newest, up to a limit", () => {
    const kept = bytecodes(2);
    for (const image of ["a", "b", "a", "c"]) kept.keep(image, code);
    expect(["a", "b", "c"].filter((image) => kept.of(image) !== null)).toEqual(["a", "c"]);
  });
});
