import { randomUUID } from "node:crypto";
import type { AgentIdentity } from "../../shared/wire/agent/lease.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { MotherSpec } from "./mother-profile.ts";
import type { Engine } from "../engine/engine.ts";
import { hostname } from "../sandbox/surroundings.ts";
import { type Mother, startMother } from "./mother.ts";
import { mostZygotes } from "./zygotes.ts";
import { createVolumes, type VolumeDeps } from "../volume/unpacker.ts";
import { rootfsVolume, bundlesVolume } from "../volume/volumes.ts";

export interface MotherDeps {
  readonly engine: Engine;
  readonly mother: MotherSpec;
  /** Looks the image up whose Python is the mother's PID 1. */
  readonly motherImage: (signal: AbortSignal) => Promise<string>;
  /** First id of the range that zygotes get, and its length. */
  readonly ids: readonly [first: number, count: number];
  /**
   * How long a mother takes new zygotes, in ms; a day by default. What its jobs have left in the
   * kernel's memory is freed when it ends.
   */
  readonly motherMs?: number;
  /** How long a mother may take to answer before it counts as stuck, in ms. */
  readonly answerMs?: number;
}

/** Starts the mother when it is first needed, and another one after it has ended. */
export interface MotherKeeper {
  /** @throws EngineError */
  readonly current: () => Promise<Mother>;
  /** The volumes that the mother reads. */
  readonly volume: VolumeDeps;
  /** Whether this is the label of one of its containers that is not removed. */
  readonly owns: (label: string) => boolean;
  readonly close: () => Promise<void>;
}

/** Ids of a zygote's user namespace: as many as programs in an image may expect. */
export const idCount = 65_536;
/** Most processes and threads of a job: its own, its PID 1, and what starts it. */
const pidsPerJob = limits.pidsMax + 8;
const pidsOfZygotes = 1024;

/** Bytes of memory that a mother needs for itself, with the frames of jobs. */
const ownBytes = 256 * 1024 ** 2;

/**
 * There is one volume with images for each range of ids, and one with bundles for each name of an agent. So
 * what earlier processes unpacked is used again.
 *
 * @param maxJobBytes most memory of one job; null if the operator sets no bound.
 */
export function motherSpec(
  { id, name }: AgentIdentity,
  slots: number,
  maxJobBytes: number | null,
  firstId: number,
): MotherSpec {
  return {
    rootfs: rootfsVolume(firstId),
    bundles: bundlesVolume(name),
    agentId: id,
    agentName: name,
    slots,
    memoryBytes: maxJobBytes && (slots + mostZygotes) * maxJobBytes + ownBytes,
    pids: (slots + mostZygotes) * pidsPerJob + pidsOfZygotes,
  };
}

const dayMs = 24 * 3600_000;
/** How long the start of a mother may take, in ms. */
const startMs = 60_000;
/**
 * Limits of a zygote's user namespace: far more namespaces than jobs at once, because the kernel frees those
 * that have ended late. Each network takes about 200 KiB of the host's memory. With inotify a job would see which
 * files of its image other jobs open, and so what they import.
 */
const closedLimits = {
  max_user_namespaces: 1024,
  max_net_namespaces: 1024,
  max_inotify_instances: 0,
};

export function createMotherKeeper(deps: MotherDeps): MotherKeeper {
  const { engine, mother: spec, motherImage, ids, motherMs = dayMs, answerMs } = deps;
  const ownLabels = new Set<string>();
  let running: Promise<Mother> | null = null;
  const alive = new Set<Mother>();
  let bornMs = 0;
  let isClosed = false;

  async function start(onDeath: () => void): Promise<Mother> {
    const limit = AbortSignal.timeout(startMs);
    const label = `mother-${randomUUID()}`;
    ownLabels.add(label);
    try {
      const settings = { ids, hostname, slots: spec.slots, closed_limits: closedLimits };
      const image = await motherImage(limit);
      await createVolumes({ engine, spec }, limit);
      const started = await startMother(engine, spec, image, label, settings, limit, answerMs);
      alive.add(started);
      started.died.addEventListener("abort", () => {
        onDeath();
        // If the engine does not remove the mother now, the reaper does later.
        ownLabels.delete(label);
        started
          .close()
          .catch(() => {})
          .finally(() => alive.delete(started));
      });
      return started;
    } catch (error) {
      ownLabels.delete(label);
      throw error;
    }
  }

  function current(): Promise<Mother> {
    if (isClosed) return Promise.reject(new Error("the agent has stopped"));
    if (running && performance.now() - bornMs < motherMs) return running;
    running?.then((old) => old.retire()).catch(() => {});
    const forget = (): void => {
      if (running === starting) running = null;
    };
    const starting = start(forget);
    running = starting;
    bornMs = performance.now();
    starting.catch(forget);
    return starting;
  }

  return {
    current,
    volume: { engine, spec, motherImage, ids, ownLabels },
    owns: (label) => ownLabels.has(label),
    async close() {
      isClosed = true;
      await running?.catch(() => null);
      await Promise.all([...alive].map((each) => each.close()));
    },
  };
}
