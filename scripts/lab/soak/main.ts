import { execFileSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { OperatorError, readConfig, runMain } from "../../operate/command.ts";
import { readProcess } from "../../setup/engine.ts";
import { setUp } from "../../setup/set-up.ts";
import { requireTools } from "../../setup/tools.ts";
import { makePrivateDockerd, mountsIn, networks } from "../../testing/machine.ts";
import { closeBooks, list, type Load, prepareTenants, startLoad } from "./load.ts";
import { makePlan, parseSoakOptions, partsOf, soakHelp, type SoakOptions } from "./plan.ts";
import { describe, followPlan, isUp, places, startWorld, type World } from "./world.ts";

const root = "/var/tmp";
const prefix = "airlock-soak-";

/** The folder of this process's soak: what is left in it tells a later one what to clear away. */
function makePlace(): string {
  const path = join(root, `${prefix}${process.pid}`);
  mkdirSync(path);
  return path;
}

/** Ends and removes what soaks that were killed have left. */
async function clearDeadPlaces(): Promise<void> {
  for (const name of readdirSync(root)) {
    if (!name.startsWith(prefix)) continue;
    if (readProcess(Number(name.slice(prefix.length)))) continue;
    await clearPlace(join(root, name));
  }
}

/** Ends every process that the place is named by, unmounts what is mounted in it, and removes it. */
async function clearPlace(path: string): Promise<void> {
  for (const pid of programsOf(path)) process.kill(pid, "SIGKILL");
  const engine = join(path, "engine");
  if (existsSync(engine)) await makePrivateDockerd(engine)[Symbol.asyncDispose]();
  for (const mount of mountsIn(path)) execFileSync("umount", ["--lazy", mount]);
  rmSync(path, { recursive: true, force: true });
}

/** Live processes that name the place on their command line, but for its engine's. */
function programsOf(path: string): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => {
      const args = pid > 0 && pid !== process.pid ? readProcess(pid)?.args.join(" ") : undefined;
      return args?.includes(`${path}/`) && !args.includes(`${path}/engine`);
    });
}

/** Whether the books balanced, and nothing was left on the machine. */
async function soakIn(place: string, dockerHost: string, options: SoakOptions): Promise<boolean> {
  const end = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => end.abort());
  let holds = false;
  try {
    holds = await runSoak(place, dockerHost, options, end.signal);
  } finally {
    const left = [...programsOf(place).map((pid) => `process ${pid}`), ...mountsIn(place)];
    if (networks().includes(`alk${process.pid}`)) left.push("the network");
    for (const what of left) process.stdout.write(`soak: left on the machine: ${what}\n`);
    holds &&= left.length === 0;
    // A soak that failed keeps its logs.
    if (holds) await clearPlace(place);
  }
  process.stdout.write(`soak: ${holds ? "everything holds" : `DOES NOT HOLD, logs in ${place}`}\n`);
  return holds;
}

const faultsShown = 50;

/** Runs a soak in the folder `place`; whether everything held. */
async function runSoak(
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

await runMain(async () => {
  const options = parseSoakOptions(process.argv.slice(2), () => randomInt(2 ** 32));
  if (options.help) {
    process.stdout.write(soakHelp);
    return;
  }
  if (process.getuid?.() !== 0) throw new OperatorError("a soak needs root: it runs a dockerd");
  const { dockerHost } = await setUp(readConfig(process.env));
  await requireTools(["network tools"], "a soak");
  await clearDeadPlaces();
  process.exit((await soakIn(makePlace(), dockerHost, options)) ? 0 : 1);
});
