import type { Logger } from "@logtape/logtape";
import type { PoolKind } from "../../shared/wire/health.ts";
import type { Gpus } from "../host/gpus.ts";
import type { InputFile } from "../sandbox/job.ts";
import {
  EngineError,
  type Sandbox,
  type SandboxRequest,
  type SandboxSource,
  type SandboxSpec,
} from "../sandbox/sandbox.ts";
import { backoffMs, type Clock } from "../waiting.ts";
import type { StartSandbox } from "./containers.ts";
import { type Forks, whyNotForked } from "./forks.ts";
import { NotForkable } from "./mother.ts";
import { createReadyList, poolKindOf } from "./ready.ts";
import type { BundleLoan } from "./volumes.ts";
import { createPreloadLearner } from "./zygotes.ts";

interface ChooseDeps {
  /** Gives containers to the jobs that cannot be forked. */
  readonly containers: SandboxSource;
  readonly forks: Forks;
  /** Whether jobs wait until forks are possible, instead of getting containers. */
  readonly mustFork: boolean;
  readonly slots: number;
  /** How long a fork may wait for its job, in ms; 0: each is opened when its job is there. */
  readonly idleMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Most forks that wait for their jobs, one of each kind. */
const mostForksReady = 4;

/** Files up to this size are sent, which is a hundred times faster than putting them into the volume. */
const smallBytes = 64 * 1024;

/** The files of a job that its fork mounts: all but small ones that take little of its memory. */
function filesToMount({ files, spec: { memoryBytes } }: SandboxRequest): readonly InputFile[] {
  const small = files.filter(({ sizeBytes }) => sizeBytes <= smallBytes);
  const bytes = small.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return bytes <= memoryBytes / 16 ? files.filter((file) => !small.includes(file)) : files;
}

/** Forks jobs where that is possible, and gives them containers where it is not. */
export function chooseSandbox({
  containers,
  forks,
  mustFork,
  slots,
  idleMs,
  clock,
  log,
}: ChooseDeps): SandboxSource {
  /** The kind of each sandbox in use; null for those of sessions, which use no slot. */
  const lent = new Map<Sandbox, PoolKind | null>();
  const kinds = new Map<string, PoolKind>();
  const noted = new Map<string, string>();

  const isIdle = (): boolean =>
    lent.size === 0 && [...kinds.values()].every(({ starting }) => starting === 0);
  const isUsable = (): boolean => mustFork || forks.problem() === null;

  const ready = createReadyList({
    open: ({ spec }, signal, job) => forks.open(spec, signal, undefined, job),
    perKind: idleMs === 0 ? 0 : 1,
    most: mostForksReady,
    starters: 1,
    idleMs: Math.max(1, idleMs),
    graceMs: 0,
    mayOpen: isUsable,
    discard: (sandbox) => void sandbox.close(),
    // The next job meets the failure itself.
    failed: () => {},
    changed: () => {},
    clock,
  });

  /** The settings of the fork for a request; null if it needs a container. */
  function forkSpec({ spec }: SandboxRequest): SandboxSpec | null {
    const own = { ...spec, packages: "none" } as const;
    return whyNotForked(own) === null && isUsable() ? own : null;
  }

  const learner = createPreloadLearner({
    prepare: forks.prepare,
    // The job that asks is one of them.
    isBusy: () => [...kinds.values()].reduce((sum, { starting }) => sum + starting, 0) > 1,
    clock,
  });

  /** Opens a fork whose zygote has imported what it has learned that such code imports. */
  async function takeLearned(
    request: SandboxRequest,
    spec: SandboxSpec,
    open: (spec: SandboxSpec) => Promise<Sandbox>,
  ): Promise<Sandbox> {
    const learned = learner.specFor(spec, request.imports, request.tenant);
    if (learned === spec) return open(spec);
    try {
      return await open(learned);
    } catch (error) {
      if (!(error instanceof NotForkable)) throw error;
      learner.forget(learned);
      return open(spec);
    }
  }

  /** One line in the log for each job type and reason. */
  function noteNotForkable({ jobType }: SandboxRequest, { message }: NotForkable): void {
    if (noted.get(jobType) === message) return;
    noted.set(jobType, message);
    log.warn("jobs of {jobType} get containers of their own, they cannot be forked: {reason}", {
      jobType,
      reason: message,
    });
  }

  async function end(sandbox: Sandbox): Promise<void> {
    await sandbox.close();
    ready.fill();
  }

  /** Opens a fork in which packages and files are mounted. */
  async function openWith(
    { tenant, packages: wanted }: SandboxRequest,
    files: readonly InputFile[],
    spec: SandboxSpec,
    signal: AbortSignal,
  ): Promise<Sandbox> {
    // Nothing is installed for a kind that cannot be forked.
    await forks.prepare(spec, signal);
    const loans: BundleLoan[] = [];
    const giveBack = (how?: "missing"): void => loans.forEach((loan) => loan.giveBack(how));
    async function lend(pending: Promise<BundleLoan>): Promise<string> {
      const loan = await pending;
      loans.push(loan);
      return loan.name;
    }
    let isOpening = false;
    try {
      const packages = wanted && {
        bundle: await lend(wanted.wait((limit) => forks.borrow(spec, wanted, limit))),
        requirements: wanted.requirements,
      };
      const mounted = [];
      for (const file of files)
        mounted.push({
          bundle: await lend(forks.borrowFile(tenant, file, signal)),
          name: file.name,
        });
      isOpening = true;
      const sandbox = await forks.open(spec, signal, { packages, files: mounted });
      return { ...sandbox, close: () => sandbox.close().finally(giveBack) };
    } catch (error) {
      giveBack(isOpening && error instanceof EngineError ? "missing" : undefined);
      throw error;
    }
  }

  /** Returns false if the sandbox is not a fork in use. */
  function endLoan(sandbox: Sandbox): boolean {
    const kind = lent.get(sandbox);
    if (kind) kind.in_use -= 1;
    return lent.delete(sandbox);
  }

  const jobs = (): number => [...lent.values()].filter((kind) => kind !== null).length;

  return {
    async acquire(request, signal, job) {
      const spec = forkSpec(request);
      if (spec === null) return containers.acquire(request, signal);
      const kind = poolKindOf(kinds, request, "zygote");
      kind.starting += 1;
      try {
        const files = filesToMount(request);
        const isPlain = request.packages === null && files.length === 0;
        // Files that are sent come before the job.
        const ahead = request.files.length === 0 ? job : undefined;
        const sandbox = await takeLearned(request, spec, (own) =>
          isPlain
            ? ready.take({ ...request, spec: own }, signal, ahead)
            : openWith(request, files, own, signal),
        );
        if (!request.isSession) kind.in_use += 1;
        lent.set(sandbox, request.isSession ? null : kind);
        return sandbox;
      } catch (error) {
        if (!(error instanceof NotForkable)) throw error;
        noteNotForkable(request, error);
        return await containers.acquire(request, signal);
      } finally {
        kind.starting -= 1;
      }
    },
    giveBack: (sandbox) => (endLoan(sandbox) ? end(sandbox) : containers.giveBack(sandbox)),
    discard(sandbox) {
      if (endLoan(sandbox)) void end(sandbox);
      else containers.discard(sandbox);
    },
    keepReadyFor(request) {
      const spec = forkSpec(request);
      if (spec === null) return containers.keepReadyFor(request);
      poolKindOf(kinds, request, "zygote");
      ready.keepReadyFor({ ...request, spec });
    },
    mountsFiles: () => forks.problem() === null,
    // Each free slot can be filled by a fork at once.
    stats: () => [
      ...containers.stats(),
      ...[...kinds.values()].map((kind) => ({ ...kind, ready: Math.max(0, slots - jobs()) })),
    ],
    owns: (label) => forks.owns(label) || containers.owns(label),
    close: async () => {
      await Promise.all([containers.close(), ready.close()]);
      // Closing now would end the running jobs with their mother. The agent closes again after they have ended.
      if (isIdle()) await forks.close();
    },
  };
}

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30_000;

/**
 * Starts containers that hold their GPUs until the engine has removed them, because until then a
 * container may still use them. A failed removal is repeated until `end`.
 */
export function withGpus(
  start: StartSandbox,
  gpus: Pick<Gpus, "hold">,
  clock: Clock,
  end: AbortSignal,
): StartSandbox {
  return async (spec, signal) => {
    if (spec.gpus.length === 0) return start(spec, signal);
    const letGo = gpus.hold(spec.gpus);
    try {
      const sandbox = await start(spec, signal);
      return { ...sandbox, close: () => closed(sandbox) };
    } catch (error) {
      letGo();
      throw error;
    }

    async function closed(sandbox: Sandbox): Promise<void> {
      try {
        await sandbox.close();
        letGo();
      } catch (error) {
        void closeLater(sandbox, 1);
        throw error;
      }
    }

    async function closeLater(sandbox: Sandbox, failures: number): Promise<void> {
      await clock.sleep(backoffMs(failures, FIRST_WAIT_MS, LONGEST_WAIT_MS), end).catch(() => {});
      if (end.aborted) return;
      await sandbox.close().then(letGo, () => closeLater(sandbox, failures + 1));
    }
  };
}
