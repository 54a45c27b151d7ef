import type { Engine } from "../engine/engine.ts";
import { environmentOf, hostname } from "../sandbox/surroundings.ts";
import { compileFilter } from "../sandbox/filter/compile-filter.ts";
import { type SeccompProfile, seccompProfile, zygoteProfile } from "../sandbox/filter/profiles.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import { backoffMs } from "../waiting/backoff.ts";
import { type Mother, NotForkable, type Zygote } from "./mother.ts";
import { gateFolder, zygoteProgram } from "../python/program.ts";
import type { RootfsStore } from "../volume/rootfs.ts";

/** The zygotes for all kinds of jobs. Each is replaced by a new one of its kind after a while. */
export interface Zygotes {
  /**
   * A zygote for jobs of this kind, and its mother. Jobs that ask while one starts share the start.
   *
   * @throws EngineError; NotForkable, also for a while after a failed start.
   */
  readonly of: (spec: SandboxSpec) => Promise<ReadyZygote>;
  /** The next job of its kind gets another zygote; this one ends with its last job. */
  readonly replace: (ready: ReadyZygote) => void;
}

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

export function createZygotes(deps: ZygotesDeps): Zygotes {
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
        current.set(key, started);
        const [oldest] = current;
        if (current.size > mostZygotes && oldest) {
          current.delete(oldest[0]);
          oldest[1].zygote.retire();
        }
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
    failed.set(key, { error, count, untilMs: performance.now() + notForkableMs(error, count) });
  }

  return {
    replace(ready) {
      for (const [key, each] of current) if (each === ready) current.delete(key);
      ready.zygote.retire();
    },
    async of(spec) {
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
  const asked = variables(environmentOf(spec));
  const its = variables(ofImage);
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
  };
  return { env, pythonPath };
}

function variables(lines: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf("=");
      return [line.slice(0, at), line.slice(at + 1)];
    }),
  );
}
