import { expect, test } from "vitest";
import type { Python } from "./find-python.ts";
import type { HostOptions } from "./host-link.ts";
import { openOnHost } from "./host-run.ts";

/** Rows about bytecode that must hold under each Python. */
export function bytecodeRows(python: () => Python): void {
  const open = async (options: HostOptions) =>
    (await openOnHost({ python: python(), ...options })).conversation;

  test("bytecode that one supervisor made serves the next", async () => {
    const first = await open({});
    expect(first.bytecode?.length).toBeGreaterThan(10_000);
    const next = await open({ bytecode: first.bytecode });
    expect(next.bytecode).toBeNull();
    expect(next.pythonVersion).toBe(python().version);
  });

  test("bytecode of another Python is refused before any of it is read", async () => {
    const { bytecode } = await open({});
    const foreign = Uint8Array.from(bytecode!);
    foreign[0]! ^= 1;
    await expect(open({ bytecode: foreign })).rejects.toThrow("bytecode of another Python");
  });
}
