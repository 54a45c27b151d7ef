import { putLast } from "../../shared/lru.ts";
import type { Engine } from "../engine/engine.ts";
import { gateFolder, zygoteProgram } from "../python/program.ts";
import {
  compileFilter,
  type SeccompProfile,
  seccompProfile,
  zygoteProfile,
} from "../sandbox/filter.ts";
import {
  EngineError,
  environmentOf,
  hostname,
  type SandboxSpec,
  variablesOf,
} from "../sandbox/sandbox.ts";
import { backoffMs, type Clock } from "../waiting.ts";
import { type Mother, NotForkable, type Zygote } from "./mother.ts";
import type { RootfsStore } from "./volumes.ts";

export type Zygotes = ReturnType<typeof createZygotes>;

export interface ReadyZygote {
  readonly mother: Mother;
  readonly zygote: Zygote;
}

/** Most zygotes that serve new jobs; older ones end with their last job. */
export const mostZygotes = 8;

export interface ZygotesDeps {
  readonly engine: Engine;
  readonly mother: () => Promise<Mother>;
  readonly rootfs: RootfsStore;
  /**
   * How long the start of a zygote may take, in ms, including the unpacking of its image; five minutes by
   * default.
   */
  readonly zygoteStartMs?: number;
}

/** Jobs of one zygote share the layout of its memory, so it serves only so many, for only so long. */
const jobsPerZygote = 1000;
const zygoteMs = 600_000;
const fiveMinutesMs = 300_000;

/**
 * How long a kind that could not be forked is not tried again, in ms: 10 minutes if the next try would fail
 * too, else 5 s, doubled with each failure in a row.
 */
const notForkableMs = ({ mayPass }: NotForkable, failures: number): number =>
  mayPass ? backoffMs(failures, 5000, 600_000) : 600_000;

interface Failure {
  readonly error: NotForkable;
  /** Failures in a row. */
  readonly count: number;
  readonly untilMs: number;
}

interface Current extends ReadyZygote {
  readonly bornMs: number;
  jobsLeft: number;
}

/** The zygotes for all kinds of jobs. Each is replaced by a new one of its kind after a while. */
export function createZygotes(deps: ZygotesDeps) {
  const { engine, mother, rootfs, zygoteStartMs: startMs = fiveMinutesMs } = deps;
  const current = new Map<string, Current>();
  const starting = new Map<string, Promise<Current>>();
  /** By kind, why its last zygote could not be started. */
  const failed = new Map<string, Failure>();

  async function start(spec: SandboxSpec): Promise<Current> {
    const limit = AbortSignal.timeout(startMs);
    const imageId = await engine.imageId(spec.image, limit);
    if (imageId === null) {
      throw new EngineError("image_not_found", `the engine has no image ${spec.image}`);
    }
    await mother();
    const root = await rootfs.prepare(imageId, limit);
    const ofImage = await engine.imageEnvironment(imageId, limit);
    // The mother may have been replaced while the image was unpacked.
    const its = await mother();
    const filterOf = (profile: SeccompProfile): Buffer =>
      spec.seccomp ? compileFilter(profile, its.machine) : Buffer.alloc(0);
    const { env, pythonPath } = environmentAtGate(ofImage, spec);
    const order = {
      root,
      env,
      program: zygoteProgram(
        pythonPath,
        spec.preload,
        filterOf(seccompProfile(spec.loopback)),
        spec.memoryBytes,
      ),
      memory: spec.memoryBytes,
      pids: spec.pids,
      cpus: Math.max(1, Math.ceil(spec.cpus)),
      filter: filterOf(zygoteProfile(spec.loopback)).toString("hex"),
    };
    const zygote = await its.startZygote(order, limit).catch((error: unknown) => {
      // The image's unpacked files may be gone. The next start looks for them again.
      rootfs.forget(imageId);
      if (!limit.aborted) throw error;
      throw new NotForkable(`what it preloads took longer than ${startMs / 1000} s`);
    });
    return { mother: its, zygote, bornMs: performance.now(), jobsLeft: jobsPerZygote };
  }

  function startOnce(key: string, spec: SandboxSpec): Promise<Current> {
    const pending = start(spec)
      .then((started) => {
        failed.delete(key);
        if (started.zygote.died.aborted) return started;
        for (const { zygote } of putLast(current, key, started, mostZygotes)) zygote.retire();
        started.zygote.died.addEventListener("abort", () => {
          if (current.get(key) === started) current.delete(key);
        });
        return started;
      })
      .catch((error: unknown) => {
        if (error instanceof NotForkable) noteFailure(key, error);
        throw error;
      })
      .finally(() => starting.delete(key));
    starting.set(key, pending);
    return pending;
  }

  function noteFailure(key: string, error: NotForkable): void {
    const count = (failed.get(key)?.count ?? 0) + 1;
    const failure = { error, count, untilMs: performance.now() + notForkableMs(error, count) };
    // A tenant can make kinds without end that fail.
    putLast(failed, key, failure, mostKinds);
  }

  return {
    /** The next job of its kind gets another zygote; this one ends with its last job. */
    replace(ready: ReadyZygote): void {
      for (const [key, each] of current) if (each === ready) current.delete(key);
      ready.zygote.retire();
    },
    /**
     * A zygote for jobs of this kind, and its mother. Jobs that ask while one starts share the start.
     *
     * @throws EngineError; NotForkable, also for a while after a failed start.
     */
    async of(spec: SandboxSpec): Promise<ReadyZygote> {
      const key = zygoteKey(spec);
      const failure = failed.get(key);
      if (failure && performance.now() < failure.untilMs) throw failure.error;
      const known = current.get(key);
      current.delete(key);
      if (known && isFresh(known)) {
        // Moves it to the end: the first one is the least recently used.
        current.set(key, known);
        known.jobsLeft -= 1;
        return known;
      }
      known?.zygote.retire();
      const started = await (starting.get(key) ?? startOnce(key, spec));
      started.jobsLeft -= 1;
      return started;
    },
  };
}

function isFresh({ mother, bornMs, jobsLeft }: Current): boolean {
  return !mother.isRetired() && jobsLeft > 0 && performance.now() - bornMs < zygoteMs;
}

/** Jobs with the same key meet the same interpreter. */
export function zygoteKey(spec: SandboxSpec): string {
  const { image, preload, learnedFor, env, cpus, seccomp, loopback, memoryBytes, pids } = spec;
  return JSON.stringify([
    image,
    preload,
    learnedFor,
    env,
    Math.ceil(cpus),
    seccomp,
    loopback,
    memoryBytes,
    pids,
  ]);
}

/** The environment of an interpreter, as the engine and python/job.py would make it. */
function environmentAtGate(ofImage: readonly string[], spec: SandboxSpec) {
  const asked = variablesOf(environmentOf(spec));
  const its = variablesOf(ofImage);
  const all: Record<string, string> = {
    PATH: its["PATH"] ?? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOSTNAME: hostname,
    // As the engine does: what is asked for comes first, and the last value of a name counts.
    ...asked,
    ...its,
    ...asked,
  };
  const pythonPath = all["PYTHONPATH"];
  const env: Record<string, string> = {
    ...all,
    HOME: "/tmp",
    PYTHONUNBUFFERED: all["PYTHONUNBUFFERED"] ?? "1",
    PYTHONPATH: pythonPath ? `${gateFolder}:${pythonPath}` : gateFolder,
    USER: all["USER"] ?? "user",
    LOGNAME: all["LOGNAME"] ?? "user",
    ...(!all["LC_ALL"] && !all["LANG"] && { LANG: "C.UTF-8" }),
  };
  return { env, pythonPath };
}

interface LearnDeps {
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

/** Learns from the texts of jobs which modules it pays to import before they arrive. */
export function createPreloadLearner({ prepare, isBusy, clock }: LearnDeps) {
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
    putLast(kinds, key, known, mostKinds);
    return known;
  }

  function count(kind: Kind, spec: SandboxSpec, wanted: readonly string[]): void {
    const key = wanted.join(" ");
    const nowMs = clock.nowMs();
    const times = (kind.askedMs.get(key) ?? []).filter((ms) => ms > nowMs - recentMs);
    times.push(nowMs);
    putLast(kind.askedMs, key, times.slice(-enoughJobs), mostCounted);
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
        putLast(kind.learned, wanted.join(" "), wanted, mostSets);
    } catch {
      kind.failedMs.set(wanted.join(" "), clock.nowMs());
    } finally {
      isPreparing = false;
    }
  }

  return {
    /**
     * The spec for a job whose text imports these modules: it preloads the largest learned set that the text imports
     * all of. What the code says while it runs counts for nothing, so no job decides what another's interpreter
     * imports. Each tenant's jobs are learned from for that tenant alone, whose zygotes these are: else a job could
     * find out what others import.
     */
    specFor(spec: SandboxSpec, imports: readonly string[], tenant: string): SandboxSpec {
      if (imports.length === 0) return spec;
      const own = { ...spec, learnedFor: tenant };
      const kind = kindOf(own);
      const wanted = imports.filter((name) => !kind.quick.has(name));
      const known = [...kind.learned.values()].filter((set) =>
        set.every((name) => wanted.includes(name)),
      );
      const [best] = known.toSorted((a, b) => b.length - a.length);
      if (best) putLast(kind.learned, best.join(" "), best, mostSets);
      if (wanted.length > 0 && best?.length !== wanted.length) count(kind, own, wanted);
      return best ? { ...own, preload: best } : spec;
    },
    /** A zygote with this preload does not work: it is not tried again for a while. */
    forget(spec: SandboxSpec): void {
      const kind = kindOf(spec);
      const key = spec.preload.join(" ");
      kind.learned.delete(key);
      kind.failedMs.set(key, clock.nowMs());
    },
  };
}

/** How much of a program is looked at, in characters and lines. */
const [mostCharacters, mostLines] = [16_384, 200];
/** Most modules of a program. */
const mostModules = 16;
/** What an import that comes earlier would miss, or would show the code. */
const matteringBefore =
  /\b(os\.environ|putenv|sys\.path|sys\.modules|warnings|locale|\w+_NUM_THREADS)\b/;
const moduleName = String.raw`[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*`;
const plainImport = new RegExp(
  String.raw`^import\s+(${moduleName}(?:\s+as\s+\w+)?(?:\s*,\s*${moduleName}(?:\s+as\s+\w+)?)*)\s*(?:#.*)?$`,
);
const fromImport = new RegExp(String.raw`^from\s+(${moduleName})\s+import\s`);

/**
 * The modules that a program imports in lines of their own, such as "matplotlib.pyplot", up to the first line that
 * names something which an earlier import would change. The text is read, never run.
 */
export function topImports(code: string): string[] {
  const found = new Set<string>();
  for (const line of code.slice(0, mostCharacters).split("\n", mostLines)) {
    if (matteringBefore.test(line)) break;
    const names = plainImport.exec(line.trimEnd())?.[1]?.split(",") ?? [
      fromImport.exec(line)?.[1] ?? "",
    ];
    for (const each of names) found.add(each.trim().split(/\s/)[0]!);
  }
  for (const never of ["", "__future__", "__main__"]) found.delete(never);
  return [...found].slice(0, mostModules);
}
