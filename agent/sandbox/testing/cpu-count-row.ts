import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { openSession } from "../session/session.ts";
import type { Python } from "./find-python.ts";
import { startOnHost } from "./host-link.ts";

/** Prints how many CPUs the usual libraries count. */
export const counts = `
import multiprocessing, os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.pool import ThreadPool
own = getattr(os, "process_cpu_count", os.cpu_count)
executor, pool = ProcessPoolExecutor(), ThreadPool()
print(os.cpu_count(), own(), multiprocessing.cpu_count(), executor._max_workers, pool._processes)
`;

export function cpuCountRow(python: () => Python): void {
  const spoolDir = mkdtempSync(join(tmpdir(), "airlock-cpus-"));
  afterAll(() => rmSync(spoolDir, { recursive: true }));

  test("os.cpu_count() is what PYTHON_CPU_COUNT says", async () => {
    const link = startOnHost(python(), { env: { PYTHON_CPU_COUNT: "7" } });
    const session = await openSession(link, AbortSignal.timeout(30_000));
    const caps = { streamBytes: 10_000, artifactBytes: 0 };
    const report = await session.run(
      { code: counts, inputJson: "{}", timeoutMs: 60_000, caps },
      { signal: new AbortController().signal, spoolDir },
    );
    link.destroy();
    expect(Buffer.from(report.stdout).toString()).toBe("7 7 7 7 7\n");
  });
}
