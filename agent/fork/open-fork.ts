import type { Logger } from "@logtape/logtape";
import { isCutShort } from "../sandbox/output/classify.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxJob } from "../sandbox/job.ts";
import { openConversation } from "../sandbox/conversation/conversation.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import { temporaryFileSizes } from "../sandbox/surroundings.ts";
import type { Zygote } from "./mother.ts";
import type { ReadyZygote, Zygotes } from "./zygotes.ts";

/** The bundles that a job finds mounted in its sandbox: packages and input files. */
export interface Provided {
  readonly packages: { readonly bundle: string; readonly requirements: readonly string[] } | null;
  readonly files: readonly { readonly bundle: string; readonly name: string }[];
}

/**
 * Opens a fork. A job that is `ahead` begins as soon as the fork is ready: it saves a way through the engine.
 *
 * @throws NotForkable if it needs a container of its own; EngineError; the signal's reason.
 */
export type OpenFork = (
  spec: SandboxSpec,
  signal: AbortSignal,
  provided?: Provided,
  ahead?: SandboxJob,
) => Promise<Sandbox>;

export interface OpenForkDeps {
  /** The zygote for jobs of this kind. */
  readonly zygoteFor: (spec: SandboxSpec, signal: AbortSignal) => Promise<ReadyZygote>;
  readonly zygotes: Pick<Zygotes, "replace">;
  readonly log: Logger;
}

/** A zygote that takes longer may hang. A fork takes a tenth of this on a busy machine. */
const forkMs = 1000;

/** Forks sandboxes from zygotes. */
export function createOpenFork({ zygoteFor, zygotes, log }: OpenForkDeps): OpenFork {
  /** Zygotes whose failed preloads are in the log already. */
  const told = new WeakSet<Zygote>();

  async function forkOnce(
    spec: SandboxSpec,
    signal: AbortSignal,
    { packages, files }: Provided = { packages: null, files: [] },
    ahead?: SandboxJob,
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
    const opening = openConversation(channel.link, signal, undefined, ahead);
    const conversation = await opening.catch(async (error: unknown) => {
      // The next job gets another zygote, because this one or its mother may hang. A job that was given up sooner
      // is no sign of that: clients can cancel their jobs at any time.
      const mayHang = !signal.aborted || performance.now() - beganAtMs > forkMs;
      if (mayHang) zygotes.replace(ready);
      const closed = close();
      if (!(error instanceof EngineError)) throw error;
      await closed;
      throw await explained(error, gone);
    });
    if (packages) conversation.tellRequirements(packages.requirements);
    if (!told.has(zygote)) tellOfPreload(zygote, conversation.preloadErrors);
    return {
      backend: "zygote",
      containerId: mother.containerId,
      pythonVersion: conversation.pythonVersion,
      preloadErrors: conversation.preloadErrors,
      startupMs: performance.now() - beganAtMs,
      ...(packages && { hasPackages: true }),
      ...(files.length > 0 && { mounted: new Set(files.map(({ name }) => name)) }),
      died: conversation.died,
      install: () => Promise.reject(new EngineError("other", "a fork installs no packages")),
      giveFiles: (files, limit) => conversation.giveFiles(files, limit),
      beginSession: conversation.beginSession,
      async whyDied() {
        const end = await gone.catch(() => null);
        return end && !end.zygote_ended ? { outOfMemory: end.oom_kills > 0 } : null;
      },
      async run(job, options) {
        const report = await conversation.run(job, options);
        if (!isCutShort(report)) return report;
        const end = await gone.catch(() => null);
        if (end === null || end.zygote_ended) return { ...report, isHostLost: true };
        return { ...report, isHostLost: false, outOfMemory: end.oom_kills > 0 };
      },
      close,
    };
  }

  function tellOfPreload(zygote: Zygote, errors: Readonly<Record<string, string>>): void {
    told.add(zygote);
    for (const [module, reason] of Object.entries(errors)) {
      log.warn("preload of {module} failed where jobs are forked: {reason}", { module, reason });
    }
  }

  /** Tries once more if the mother or the zygote fails: no job has run in them yet, or one that nobody can have noticed. */
  return async (spec, signal, provided, ahead) => {
    try {
      return await forkOnce(spec, signal, provided, ahead);
    } catch (error) {
      if (!(error instanceof EngineError) || error.code !== "not_forked") throw error;
      return forkOnce(spec, signal, provided, ahead);
    }
  };
}

/** Adds what the mother knows of a failed start. */
async function explained(
  { code, message }: EngineError,
  gone: Promise<{ problem: string | null }>,
): Promise<EngineError> {
  const end = await gone.catch(() => null);
  const words = end?.problem ? `${message}: ${end.problem}` : message;
  return new EngineError(code === "other" ? "not_forked" : code, words);
}
