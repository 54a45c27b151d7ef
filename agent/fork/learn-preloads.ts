import type { SandboxSpec } from "../sandbox/spec.ts";
import type { Clock } from "../waiting/clock.ts";
import { zygoteKey } from "./zygotes.ts";

/** Learns from the texts of jobs which modules it pays to import before they arrive. */
export interface PreloadLearner {
  /**
   * The spec for a job whose text imports these modules: it preloads the largest learned set that the text imports all
   * of. What the code says while it runs counts for nothing, so no job decides what another's interpreter imports.
   * Each tenant's jobs are learned from for that tenant alone, whose zygotes these are: else a job could find out
   * what others import.
   */
  readonly specFor: (spec: SandboxSpec, imports: readonly string[], tenant: string) => SandboxSpec;
  /** A zygote with this preload does not work: it is not tried again for a while. */
  readonly forget: (spec: SandboxSpec) => void;
}

export interface LearnDeps {
  /** Starts a zygote, and tells for each module of its preload how many ms its import took. */
  readonly prepare: (
    spec: SandboxSpec,
    signal: AbortSignal,
  ) => Promise<ReadonlyMap<string, number>>;
  /** Whether a job waits for a sandbox: then nothing is prepared. */
  readonly isBusy: () => boolean;
  readonly clock: Clock;
}

/** So many jobs in so many ms make a set worth a zygote of its own. */
const [enoughJobs, recentMs] = [3, 600_000];
/** A module that is imported faster than this is left to the code. */
const worthMs = 20;
/** Sets for each kind of job: a zygote's memory is the agent's. */
const mostSets = 3;
/** Sets that are counted for each kind. */
const mostCounted = 100;
const mostKinds = 50;
const prepareMs = 120_000;

interface Kind {
  /** Learned sets, the one used longest ago first. */
  readonly learned: Map<string, readonly string[]>;
  /** By set, when jobs asked for it lately. */
  readonly askedMs: Map<string, number[]>;
  /** Modules that do not pay. */
  readonly quick: Set<string>;
  /** By set, when it failed. */
  readonly failedMs: Map<string, number>;
}

export function createPreloadLearner({ prepare, isBusy, clock }: LearnDeps): PreloadLearner {
  const kinds = new Map<string, Kind>();
  let isPreparing = false;

  /** The kind of jobs with this spec and its owner, whatever they preload. */
  function kindOf(spec: SandboxSpec): Kind {
    const key = zygoteKey({ ...spec, preload: [] });
    const known = kinds.get(key) ?? {
      learned: new Map(),
      askedMs: new Map(),
      quick: new Set(),
      failedMs: new Map(),
    };
    touch(kinds, key, known, mostKinds);
    return known;
  }

  function count(kind: Kind, spec: SandboxSpec, wanted: readonly string[]): void {
    const key = wanted.join(" ");
    const nowMs = clock.nowMs();
    const times = (kind.askedMs.get(key) ?? []).filter((ms) => ms > nowMs - recentMs);
    times.push(nowMs);
    touch(kind.askedMs, key, times.slice(-enoughJobs), mostCounted);
    const hasFailed = (kind.failedMs.get(key) ?? -Infinity) > nowMs - recentMs;
    if (times.length < enoughJobs || hasFailed || isPreparing || isBusy()) return;
    void learn(kind, spec, wanted);
  }

  async function learn(kind: Kind, spec: SandboxSpec, wanted: readonly string[]): Promise<void> {
    isPreparing = true;
    try {
      const took = await prepare({ ...spec, preload: wanted }, AbortSignal.timeout(prepareMs));
      for (const name of wanted) if ((took.get(name) ?? 0) < worthMs) kind.quick.add(name);
      // Else the next job asks for the set without its quick modules.
      if (!wanted.some((name) => kind.quick.has(name)))
        touch(kind.learned, wanted.join(" "), wanted, mostSets);
    } catch {
      kind.failedMs.set(wanted.join(" "), clock.nowMs());
    } finally {
      isPreparing = false;
    }
  }

  return {
    specFor(spec, imports, tenant) {
      if (imports.length === 0) return spec;
      const own = { ...spec, learnedFor: tenant };
      const kind = kindOf(own);
      const wanted = imports.filter((name) => !kind.quick.has(name));
      const known = [...kind.learned.values()].filter((set) =>
        set.every((name) => wanted.includes(name)),
      );
      const [best] = known.toSorted((a, b) => b.length - a.length);
      if (best) touch(kind.learned, best.join(" "), best, mostSets);
      if (wanted.length > 0 && best?.length !== wanted.length) count(kind, own, wanted);
      return best ? { ...own, preload: best } : spec;
    },
    forget(spec) {
      const kind = kindOf(spec);
      const key = spec.preload.join(" ");
      kind.learned.delete(key);
      kind.failedMs.set(key, clock.nowMs());
    },
  };
}

/** Puts an entry at the end, and removes the first ones where there are more than `most`. */
function touch<T>(map: Map<string, T>, key: string, value: T, most: number): void {
  map.delete(key);
  map.set(key, value);
  for (const oldest of map.keys()) {
    if (map.size <= most) return;
    map.delete(oldest);
  }
}
