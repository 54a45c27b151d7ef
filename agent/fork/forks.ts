import { randomUUID } from "node:crypto";
import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import { abortable } from "../waiting/abortable.ts";
import { openSession } from "../sandbox/session/session.ts";
import { temporaryFileSizes } from "../sandbox/surroundings.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { InputFile } from "../sandbox/job.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import { createMotherKeeper, type MotherDeps } from "./keep-mother.ts";
import type { WantedPackages } from "../sandbox/package-request.ts";
import { installApart, type InstallLimits } from "../volume/install-apart.ts";
import { createZygotes, type ReadyZygote, type ZygotesDeps } from "./zygotes.ts";
import type { Zygote } from "./mother.ts";
import { probeSandbox } from "./probe.ts";
import { createRootfsStore } from "../volume/rootfs.ts";
import { borrowFile } from "../volume/file-bundle.ts";
import { createBundles, type BundleLoan } from "../volume/bundles.ts";

/** Sandboxes that are forked from an interpreter that runs already. */
export interface Forks {
  /**
   * Why jobs are not forked on this host; null if they are. That is so once a probe job has found
   * its sandbox as it should be. Begins a probe where one is due.
   */
  readonly problem: () => string | null;
  /** Resolves once the newest probe has ended; rejects with the signal's reason. */
  readonly probed: (signal: AbortSignal) => Promise<void>;
  /**
   * Starts what a job of this kind will be forked from.
   *
   * @throws NotForkable if it needs a container of its own; EngineError; the signal's reason.
   */
  readonly prepare: (spec: SandboxSpec, signal: AbortSignal) => Promise<void>;
  /**
   * Lends the packages that a job of this kind wants, which are installed first where they are
   * missing.
   *
   * @throws InstallError; EngineError; the signal's reason.
   */
  readonly borrow: (
    spec: SandboxSpec,
    wanted: WantedPackages,
    signal: AbortSignal,
  ) => Promise<BundleLoan>;
  /**
   * Unpacks the files of an image, so that its first job does not wait for it. Does nothing where jobs are
   * not forked.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly unpack: (image: string, signal: AbortSignal) => Promise<void>;
  /** @throws NotForkable if it needs a container of its own; EngineError; the signal's reason. */
  readonly open: (spec: SandboxSpec, signal: AbortSignal, provided?: Provided) => Promise<Sandbox>;
  /**
   * Lends an input file, put into the volume first where it is missing.
   *
   * @throws JobRefusal; EngineError; the disk's errors; the signal's reason.
   */
  readonly borrowFile: (file: InputFile, signal: AbortSignal) => Promise<BundleLoan>;
  /** Whether a container with this label is a part of this, and alive. */
  readonly owns: (label: string) => boolean;
  readonly close: () => Promise<void>;
}

/** What a job finds in its sandbox: packages and input files, by the names of their bundles. */
export interface Provided {
  readonly packages: { readonly bundle: string; readonly requirements: readonly string[] } | null;
  readonly files: readonly { readonly bundle: string; readonly name: string }[];
}

export interface ForksDeps extends MotherDeps, Pick<ZygotesDeps, "zygoteStartMs"> {
  /** `maxBytes` are also those of all bundles together. */
  readonly packages: InstallLimits & {
    /** Whether bundles that no job uses are kept for the next one. */
    readonly keepsUnused: boolean;
  };
  readonly log: Logger;
}

/** The problem before the first probe has ended. */
const notProbed = "the probe job has not ended yet";
/** Pause in ms after so many failed probes in a row: 5 s, doubled each time, 2 minutes at most. */
const probeAgainMs = (failures: number): number => Math.min(5000 * 2 ** (failures - 1), 120_000);
/** A fork takes a tenth of this on a busy machine. */
const forkMs = 1000;
/** How long a probe may take, with all that it starts, in ms. */
const probeMs = 300_000;

export function createForks(deps: ForksDeps): Forks {
  const { log } = deps;
  const keeper = createMotherKeeper(deps);
  const rootfs = createRootfsStore(keeper.volume);
  const zygotes = createZygotes({ ...deps, mother: keeper.current, rootfs });
  const bundles = createBundles({ ...keeper.volume, ...deps.packages, log });
  /** Secret part of the names of files' bundles: a hostile image that knows a file's hash must not find the file. */
  const secret = randomUUID();
  /** Zygotes whose failed preloads are in the log. */
  const told = new WeakSet<Zygote>();
  let reason: string | null = notProbed;
  /** When the next probe is due; null while one runs, or after one that found no fault. */
  let dueMs: number | null = 0;
  /** The newest probe; never rejects. */
  let probing = Promise.resolve();
  /** Probes that failed in a row; those that did not reach the engine count as one. */
  let failures = 0;

  /** If mother or zygote fail, tries once more: nothing of the job has been sent to them yet. */
  async function fork(...[spec, signal, provided]: Parameters<Forks["open"]>): Promise<Sandbox> {
    try {
      return await forkOnce(spec, signal, provided);
    } catch (error) {
      if (!(error instanceof EngineError) || error.code !== "not_forked") throw error;
      return forkOnce(spec, signal, provided);
    }
  }

  async function forkOnce(
    spec: SandboxSpec,
    signal: AbortSignal,
    { packages, files }: Provided = { packages: null, files: [] },
  ): Promise<Sandbox> {
    signal.throwIfAborted();
    const beganAtMs = performance.now();
    const ready = await zygoteFor(spec, signal);
    const { mother, zygote } = ready;
    const { memoryBytes: memory, pids, cpus } = spec;
    const sizes = temporaryFileSizes(memory);
    const { channel, gone, close } = zygote.open({
      memory,
      pids,
      cpus,
      packages: packages?.bundle ?? "",
      files: files.map(({ bundle, name }) => [bundle, name] as const),
      ...sizes,
    });
    const session = await openSession(channel.link, signal).catch(async (error: unknown) => {
      // The next job gets another zygote: this one, or its mother, may hang. A job that is given up sooner does not
      // say so, and every client can cancel its own.
      const isTelling = !signal.aborted || performance.now() - beganAtMs > forkMs;
      if (isTelling) zygotes.replace(ready);
      const closed = close();
      if (!(error instanceof EngineError)) throw error;
      await closed;
      throw await explained(error, gone);
    });
    if (packages) session.tellRequirements(packages.requirements);
    if (!told.has(zygote)) tellOfPreload(zygote, session.preloadErrors);
    return {
      backend: "zygote",
      containerId: mother.containerId,
      pythonVersion: session.pythonVersion,
      preloadErrors: session.preloadErrors,
      startupMs: performance.now() - beganAtMs,
      ...(packages && { hasPackages: true }),
      ...(files.length > 0 && { mounted: new Set(files.map(({ name }) => name)) }),
      died: session.died,
      install: () => Promise.reject(new EngineError("other", "a fork installs no packages")),
      giveFiles: (files, limit) => session.giveFiles(files, limit),
      async run(job, options) {
        const report = await session.run(job, options);
        if (report.ending !== "lost") return report;
        const end = await gone.catch(() => null);
        if (end === null || end.zygote_ended) return { ...report, isHostLost: true };
        return { ...report, isHostLost: false, outOfMemory: end.oom_kills > 0 };
      },
      close,
    };
  }

  async function zygoteFor(spec: SandboxSpec, signal: AbortSignal): Promise<ReadyZygote> {
    return abortable(zygotes.of(spec).catch(noteFailure), signal);
  }

  function tellOfPreload(zygote: Zygote, errors: Readonly<Record<string, string>>): void {
    told.add(zygote);
    for (const [module, reason] of Object.entries(errors)) {
      log.warn("preload of {module} failed where jobs are forked: {reason}", { module, reason });
    }
  }

  /** After a mother or zygote failed to start, a probe must pass before the next job is forked. */
  function noteFailure(error: unknown): never {
    if (error instanceof EngineError && error.code !== "image_not_found" && reason === null) {
      setProblem(describeError(error), 0);
    }
    throw error;
  }

  function setProblem(now: string | null, nextMs: number | null): void {
    dueMs = nextMs;
    const before = reason;
    reason = now;
    if (now === null && before !== null) {
      log.info("jobs are forked: the probe job found its sandbox as it should be");
    }
    // Logged once, even if each probe words the reason differently.
    if (now !== null && (before === null || before === notProbed)) {
      log.warn("jobs are not forked here: {reason}", { reason: now });
    }
  }

  async function probe(): Promise<void> {
    dueMs = null;
    const signal = AbortSignal.timeout(probeMs);
    try {
      await probeSandbox(fork, deps.mother, await deps.motherImage(signal), signal);
      failures = 0;
      setProblem(null, null);
    } catch (error) {
      const isOutOfReach = error instanceof EngineError && error.code === "unavailable";
      failures = isOutOfReach ? 1 : failures + 1;
      setProblem(describeError(error), performance.now() + probeAgainMs(failures));
    }
  }

  function problem(): string | null {
    if (dueMs !== null && performance.now() >= dueMs) probing = probe();
    return reason;
  }

  async function probed(signal: AbortSignal): Promise<void> {
    if (problem() !== null) await abortable(probing, signal);
  }

  /** Forks no job where no probe has passed since the last failure. */
  async function open(...[spec, signal, provided]: Parameters<Forks["open"]>): Promise<Sandbox> {
    await probed(signal);
    if (reason !== null) throw new EngineError("not_forked", `jobs are not forked here: ${reason}`);
    return fork(spec, signal, provided);
  }

  return {
    problem,
    probed,
    prepare: async (spec, signal) => void (await zygoteFor(spec, signal)),
    borrow: (spec, wanted, signal) =>
      bundles.borrow(
        wanted.key,
        (keep, limit) => installApart(keeper.volume, spec, wanted, deps.packages, keep, limit),
        signal,
        wanted.took,
      ),
    borrowFile: (file, signal) => borrowFile(bundles, secret, file, signal),
    open,
    async unpack(image, signal) {
      if (problem() !== null) return;
      const imageId = await deps.engine.imageId(image, signal);
      if (imageId !== null) await rootfs.prepare(imageId, signal);
    },
    owns: keeper.owns,
    async close() {
      await Promise.all([bundles.close(), rootfs.close()]);
      await keeper.close();
    },
  };
}

/** Adds to a failed start what the mother knows of it. */
async function explained(
  { code, message }: EngineError,
  gone: Promise<{ problem: string | null }>,
): Promise<EngineError> {
  const end = await gone.catch(() => null);
  const words = end?.problem ? `${message}: ${end.problem}` : message;
  return new EngineError(code === "other" ? "not_forked" : code, words);
}

/** The runtimes whose containers a fork inside of one equals. */
const plainRuntimes: readonly (string | null)[] = [null, "runc", "crun"];

/** Why such a sandbox needs a container of its own; null if it can be forked. */
export function whyNotForked(spec: SandboxSpec): string | null {
  if (!plainRuntimes.includes(spec.runtime)) return `the runtime is ${spec.runtime}`;
  if (spec.network !== "none") return `the network is ${spec.network}`;
  if (spec.gpus.length > 0) return "it has GPUs";
  return spec.packages === "none" ? null : "packages are installed in it";
}
