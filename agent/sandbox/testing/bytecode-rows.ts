import { expect, test } from "vitest";
import { maxPayloadBytes } from "../protocol/frames.ts";
import type { Python } from "./find-python.ts";
import type { HostOptions } from "./host-link.ts";
import { openOnHost } from "./host-run.ts";

/** Rows about bytecode that must hold under each Python. */
export function bytecodeRows(python: () => Python): void {
  const open = async (options: HostOptions) =>
    (await openOnHost({ python: python(), ...options })).conversation;

  test("bytecode that one supervisor made serves the next", async () => {
    const first = await open({});
    expect(first.bytecode?.program.length).toBeGreaterThan(10_000);
    const next = await open({ bytecode: first.bytecode });
    expect(next.bytecode).toBeNull();
    expect(next.pythonVersion).toBe(python().version);
  });

  test("a job's container gets no module that only sessions and cells need", async () => {
    const { bytecode } = await open({});
    const later = ["cells", "serve", "session", "tools"];
    expect(modulesIn(bytecode!.later)).toEqual(new Set(later));
    expect(later.filter((name) => modulesIn(bytecode!.program).has(name))).toEqual([]);
    expect(bytecode!.program.length).toBeLessThan(maxPayloadBytes / 2);
  });

  test("bytecode of another Python is refused before any of it is read", async () => {
    const { bytecode } = await open({});
    const program = Uint8Array.from(bytecode!.program);
    program[0]! ^= 1;
    await expect(open({ bytecode: { ...bytecode!, program } })).rejects.toThrow(
      "bytecode of another Python",
    );
  });
}

/** The modules that bytecode is of. */
function modulesIn(bytecode: Uint8Array): Set<string> {
  const found = Buffer.from(bytecode)
    .toString("latin1")
    .matchAll(/airlock\/(\w+)\.py/g);
  return new Set([...found].map(([, name = ""]) => name));
}
