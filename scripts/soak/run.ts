import { readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, followPlan } from "./faults.ts";
import { type Load, prepareTenants, startLoad } from "./load.ts";
import type { SoakOptions } from "./options.ts";
import { makePlan, partsOf } from "./plan.ts";
import { closeBooks, list } from "./rest.ts";
import { isUp, places, startWorld, type World } from "./world.ts";

const faultsShown = 50;

/** Runs a soak in the folder `place`; whether everything held. */
export async function runSoak(
  place: string,
  dockerHost: string,
  { minutes, seed, world: name, every }: SoakOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const plan = makePlan(seed, minutes * 60_000, every * 1000, partsOf[name]);
  tell(`seed ${seed}, ${minutes} minutes, world ${name}, ${plan.length} faults planned:`);
  for (const fault of plan) tell(`  ${describe(fault)}`);
  await using prepared = await prepareTenants();
  await using world = await startWorld(name, place, dockerHost, prepared.vars);
  await untilReady(world);
  tell("the service is up");

  // One place stays free for what a fault has left behind.
  const load = await startLoad({
    urls: world.urls,
    prepared,
    seed,
    isCalm: false,
    places: places - 2,
  });
  const over = new AbortController();
  const telling = tellEveryMinute(load, over.signal);
  await Promise.all([
    followPlan(world, plan, tell, signal),
    sleep(minutes * 60_000, undefined, { signal }).catch(() => {}),
  ]);
  over.abort();
  await telling;
  tell("every fault is mended; no more submissions");
  await load.stop();
  if (signal.aborted) {
    tell("stopped before its time: the books stay open");
    return false;
  }
  await untilReady(world);
  const faults = await close(world, load);
  for (const fault of faults.slice(0, faultsShown)) tell(`FAULT ${fault}`);
  tell(`${faults.length} faults found`);
  return faults.length === 0;
}

async function close(world: World, { watch }: Load): Promise<string[]> {
  const ledger = await closeBooks(world.db, watch);
  const left = await stopInOrder(world);
  world.db.close();
  const total = [...ledger.ended.values()].reduce((sum, n) => sum + n, 0);
  tellLoad(watch);
  tell(`went well: ${list(watch.performed)}`);
  tell(`lost to faults: ${list(watch.lost) || "nothing"}`);
  tell(`${total} executions, ${ledger.acknowledged} acknowledged one by one; they ended as`);
  tell(`  ${list(ledger.ended)}`);
  tell(`${ledger.retried} at their second attempt; ${ledger.deadLetters} dead letters`);
  for (const part of [
    ...world.apis,
    ...world.agents,
    ...(world.database ? [world.database] : []),
  ]) {
    if (part.ownEnds.size > 0) tell(`${part.name} ended by itself: ${list(part.ownEnds)}`);
  }
  return [...watch.violations, ...ledger.faults, ...left];
}

/** Ends agents and APIs in order; what they left, or did not end in order, one line each. */
async function stopInOrder(world: World): Promise<string[]> {
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

/** @throws Error where an API is not ready within two minutes. */
async function untilReady({ urls }: World): Promise<void> {
  const giveUp = AbortSignal.timeout(120_000);
  for (const url of urls) {
    while (!(await isUp(`${url}/health/ready`))) {
      if (giveUp.aborted) throw new Error(`${url} is not ready: see its log`);
      await sleep(100);
    }
  }
}

async function tellEveryMinute({ watch }: Load, signal: AbortSignal) {
  while (!signal.aborted) {
    await sleep(60_000, undefined, { signal }).catch(() => {});
    tellLoad(watch);
  }
}

const tellLoad = ({ requests, checks, acknowledged, violations, lost }: Load["watch"]): void => {
  const lostOnes = [...lost.values()].reduce((sum, n) => sum + n, 0);
  tell(
    `${requests} requests, ${checks} checks, ${acknowledged.size} jobs acknowledged, ${lostOnes} operations lost to faults, ${violations.length} violations`,
  );
};

function tell(line: string): void {
  process.stdout.write(`soak ${new Date().toISOString().slice(11, 19)} ${line}\n`);
}
