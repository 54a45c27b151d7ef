import { setTimeout as sleep } from "node:timers/promises";
import { checkLedger } from "../testing/ledger.ts";
import { describe, followPlan } from "./faults.ts";
import { type Load, startLoad } from "./load.ts";
import type { SoakOptions } from "./options.ts";
import { makePlan } from "./plan.ts";
import { checkArtifacts, stopInOrder, untilAtRest } from "./rest.ts";
import { isUp, startWorld, type World } from "./world.ts";

const artifactsChecked = 500;
const faultsShown = 50;

/** Runs a soak in the folder `place`; whether everything held. */
export async function runSoak(
  place: string,
  dockerHost: string,
  { minutes, seed, clients, every }: SoakOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const plan = makePlan(seed, minutes * 60_000, every * 1000);
  tell(`seed ${seed}, ${minutes} minutes, ${clients} clients, ${plan.length} faults planned:`);
  for (const fault of plan) tell(`  ${describe(fault)}`);
  await using world = await startWorld(place, dockerHost);
  await untilReady(world);
  tell("the service is up");

  const load = startLoad({ urls: world.urls, key: world.key, seed, clients });
  const over = new AbortController();
  const telling = tellEveryMinute(load, over.signal);
  await followPlan(world, plan, tell, signal);
  over.abort();
  await telling;
  tell("every fault is mended; no more submissions");
  await load.stop();
  if (signal.aborted) {
    tell("stopped before its time: the books stay open");
    return false;
  }
  const faults = [...load.faults, ...(await closeBooks(world, load))];
  for (const fault of faults.slice(0, faultsShown)) tell(`FAULT ${fault}`);
  tell(`${faults.length} faults found`);
  return faults.length === 0;
}

async function closeBooks(world: World, load: Load): Promise<string[]> {
  const db = await world.openDatabase();
  const open = await untilAtRest(db);
  if (open > 0) tell(`${open} executions have not ended in time`);
  await untilReady(world);
  const files = await checkArtifacts(world, load.acknowledged, artifactsChecked);
  const left = await stopInOrder(world);
  const ledger = await checkLedger(db, load.acknowledged);
  db.close();

  const total = [...ledger.ended.values()].reduce((sum, n) => sum + n, 0);
  tell(`answers: ${list(load.counts)}`);
  tell(`${total} executions, ${ledger.acknowledged} acknowledged one by one; they ended as`);
  tell(`  ${list(ledger.ended)}`);
  tell(`${ledger.retried} at their second attempt; ${ledger.deadLetters} dead letters`);
  tell(`${files.checked} jobs' files compared with their output; ${left.length} things left over`);
  for (const part of [...world.apis, ...world.agents, world.database]) {
    if (part.ownEnds.size > 0) tell(`${part.name} ended by itself: ${list(part.ownEnds)}`);
  }
  return [...ledger.faults, ...files.faults, ...left];
}

/** @throws Error where an API is not ready within two minutes. */
async function untilReady({ urls, apis }: World): Promise<void> {
  const giveUp = AbortSignal.timeout(120_000);
  for (const [i, url] of urls.entries()) {
    while (!(await isUp(`${url}/health/ready`))) {
      if (giveUp.aborted) throw new Error(`${apis[i]!.name} is not ready: see its log`);
      await sleep(100);
    }
  }
}

async function tellEveryMinute({ acknowledged, counts }: Load, signal: AbortSignal) {
  while (!signal.aborted) {
    await sleep(60_000, undefined, { signal }).catch(() => {});
    tell(`${acknowledged.length} acknowledged; answers: ${list(counts)}`);
  }
}

const list = (counts: ReadonlyMap<string, number>): string =>
  [...counts]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([what, n]) => `${n} ${what}`)
    .join(", ");

function tell(line: string): void {
  process.stdout.write(`soak ${new Date().toISOString().slice(11, 19)} ${line}\n`);
}
