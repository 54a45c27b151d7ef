import { afterAll, expect, test } from "vitest";
import { openSession } from "../session/session.ts";
import type { Python } from "./find-python.ts";
import { type HostLink, type HostOptions, startOnHost } from "./host-link.ts";

/** Rows about bytecode that must hold under each Python. */
export function bytecodeRows(python: () => Python): void {
  const started: HostLink[] = [];
  afterAll(() => started.forEach((link) => link.destroy()));

  function open(options: HostOptions) {
    const link = startOnHost(python(), options);
    started.push(link);
    return openSession(link, AbortSignal.timeout(60_000));
  }

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
