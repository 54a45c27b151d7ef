import { setTimeout as sleep } from "node:timers/promises";
import { type Fault, faultKinds } from "./plan.ts";
import type { KeptProcess } from "./kept-process.ts";
import type { World } from "./world.ts";

/** How a fault begins, and how it is mended. */
type Breakage = {
  readonly begin: () => void | Promise<unknown>;
  readonly mend: () => void | Promise<unknown>;
};

const killed = (part: KeptProcess): Breakage => ended(part, "SIGKILL");
const toldToStop = (part: KeptProcess): Breakage => ended(part, "SIGTERM");
const ended = (part: KeptProcess, signal: NodeJS.Signals): Breakage => ({
  begin: () => part.down(signal),
  mend: () => part.up(),
});
const frozen = (part: KeptProcess): Breakage => ({
  begin: () => part.signal("SIGSTOP"),
  mend: () => part.signal("SIGCONT"),
});

function breakage(world: World, { kind, on }: Fault): Breakage {
  const { agents, apis, database, disk, engine } = world;
  const [agent, api, spool] = [agents[on]!, apis[on]!, world.spools[on]!];
  const host = world.hosts[on]!;
  switch (kind) {
    case "agent killed":
      return killed(agent);
    case "agent frozen":
      return frozen(agent);
    case "agent told to stop":
      return toldToStop(agent);
    case "api killed":
      return killed(api);
    case "api frozen":
      return frozen(api);
    case "api told to stop":
      return toldToStop(api);
    case "database killed":
      return killed(database!);
    case "database frozen":
      return frozen(database!);
    case "engine killed":
      return { begin: () => engine.end("SIGKILL"), mend: () => engine.start() };
    case "engine told to stop":
      return { begin: () => engine.end("SIGTERM"), mend: () => engine.start() };
    case "wire cut":
      return { begin: () => host.cut("both"), mend: () => host.heal() };
    case "wire cut from the agent":
      return { begin: () => host.cut("out"), mend: () => host.heal() };
    case "wire cut to the agent":
      return { begin: () => host.cut("in"), mend: () => host.heal() };
    case "wire loses packets":
      return { begin: () => host.lose(0.3), mend: () => host.heal() };
    case "wire slow":
      return { begin: () => host.slow(64), mend: () => host.heal() };
    case "disk full":
      return { begin: disk.fill, mend: disk.free };
    case "spool full":
      return { begin: spool.fill, mend: spool.free };
  }
}

/** Follows the plan to its end; every fault is mended then, also where `signal` cut it short. */
export async function followPlan(
  world: World,
  plan: readonly Fault[],
  tell: (line: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const begunMs = performance.now();
  const lines = new Map<string, Promise<void>>();
  const wait = (ms: number) => sleep(ms, undefined, { signal }).catch(() => {});

  async function befall(fault: Fault): Promise<void> {
    const { begin, mend } = breakage(world, fault);
    await begin();
    await wait(fault.forMs);
    await mend();
  }

  for (const fault of plan) {
    await wait(fault.atMs - (performance.now() - begunMs));
    if (signal.aborted) break;
    tell(describe(fault));
    // A part that takes its time to come back is left to it before the next one befalls it.
    const part = `${partOf(fault)} ${fault.on}`;
    lines.set(
      part,
      (lines.get(part) ?? Promise.resolve()).then(() => befall(fault)),
    );
  }
  await Promise.all(lines.values());
}

const partOf = ({ kind }: Fault): string => faultKinds.find(({ name }) => name === kind)!.part;

export function describe({ atMs, kind, on, forMs }: Fault): string {
  return `+${(atMs / 1000).toFixed(1)} s: ${kind} (${partOf({ kind } as Fault)} ${on}) for ${(forMs / 1000).toFixed(1)} s`;
}
