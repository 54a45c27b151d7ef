import { readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "@libsql/client";
import type { Acknowledged } from "../testing/ledger.ts";
import type { World } from "./world.ts";

/** Longer than the longest job of a soak runs twice, with its leases and the breaker's rest. */
const restWithinMs = 300_000;

/** Resolves with what has not ended when nothing waits or runs any more, or when it is given up. */
export async function untilAtRest(db: Client): Promise<number> {
  const deadline = performance.now() + restWithinMs;
  for (;;) {
    const open = await db
      .execute("SELECT count(*) AS n FROM executions WHERE status IN ('queued', 'running')")
      .then(({ rows }) => Number(rows[0]?.["n"]))
      .catch(() => Infinity);
    if (open === 0 || performance.now() > deadline) return open;
    await sleep(500);
  }
}

/** Ends agents and APIs in order; what they left, or did not end in order, one line each. */
export async function stopInOrder(world: World): Promise<string[]> {
  const faults: string[] = [];
  for (const parts of [world.agents, world.apis]) {
    const codes = await Promise.all(parts.map((part) => part.down("SIGTERM")));
    codes.forEach((code, i) => {
      if (code !== 0) faults.push(`${parts[i]!.name} ended with ${code} when told to stop`);
    });
  }
  for (const id of await world.containers()) faults.push(`the container ${id} is left`);
  for (const { path } of world.spools) {
    for (const name of readdirSync(path)) faults.push(`${path}/${name} is left`);
  }
  return faults;
}

type Shown = { output: { run?: string } | null; artifacts: { name: string }[]; status: string };

/**
 * Whether every job that wrote files shows those of one run, and of no other: its output and its
 * artifact name the same. Asks for up to `most` of them.
 */
export async function checkArtifacts(
  { urls, key }: World,
  acknowledged: readonly Acknowledged[],
  most: number,
): Promise<{ checked: number; faults: string[] }> {
  const headers = { "X-API-Key": key };
  const faults: string[] = [];
  let checked = 0;
  for (const { id } of acknowledged.toReversed()) {
    if (checked === most) break;
    const record = await fetch(`${urls[0]}/executions/${id}?view=full`, { headers });
    const { output, artifacts, status } = (await record.json()) as Shown;
    const names = artifacts.map(({ name }) => name).toSorted();
    if (output?.run === undefined) {
      if (status === "failed" && names.length > 0)
        faults.push(`${id} failed and shows ${names.join()}`);
      continue;
    }
    checked += 1;
    if (names.join() !== "big.bin,run.txt") faults.push(`${id} shows ${names.join() || "no file"}`);
    const file = await fetch(`${urls[0]}/jobs/${id}/artifacts/run.txt`, { headers });
    const run = await file.text();
    if (run !== output.run) faults.push(`${id} shows run.txt of ${run}, output of ${output.run}`);
  }
  return { checked, faults };
}
