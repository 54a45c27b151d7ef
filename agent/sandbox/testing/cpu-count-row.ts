import { expect, test } from "vitest";
import type { Python } from "./find-python.ts";
import { runOnHost } from "./host-run.ts";

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
  test("os.cpu_count() is what PYTHON_CPU_COUNT says", async () => {
    const env = { PYTHON_CPU_COUNT: "7" };
    expect((await runOnHost(counts, { python: python(), env })).out).toBe("7 7 7 7 7\n");
  });
}
