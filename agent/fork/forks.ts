import { randomUUID } from "node:crypto";
import type { Logger } from "@logtape/logtape";
import { EngineError } from "../sandbox/errors.ts";
import type { InputFile } from "../sandbox/job.ts";
import type { WantedPackages } from "../sandbox/package-request.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import { type BundleLoan, createBundles } from "../volume/bundles.ts";
import { borrowFile } from "../volume/file-bundle.ts";
import { installApart, type InstallLimits } from "../volume/install-apart.ts";
import { createRootfsStore } from "../volume/rootfs.ts";
import { abortable } from "../waiting/abortable.ts";
import { createForkHealth, type ForkHealth } from "./fork-health.ts";
import { createMotherKeeper, type MotherDeps } from "./keep-mother.ts";
import { createOpenFork, type OpenFork } from "./open-fork.ts";
import { probeSandbox } from "./probe.ts";
import { createZygotes, type ReadyZygote, type ZygotesDeps } from "./zygotes.ts";

/** Sandboxes that are forks of a running interpreter. */
export interface Forks extends Pick<ForkHealth, "problem" | "probed"> {
  /**
   * Starts the zygote for jobs of this kind. Tells how many ms the import of each module of its preload took.
   *
   * @throws NotForkable if it needs a container of its own; EngineError; the signal's reason.
   */
  readonly prepare: (
    spec: SandboxSpec,
    signal: AbortSignal,
  ) => Promise<ReadonlyMap<string, number>>;
  /**
   * Lends the packages that a job of this kind wants. Installs them first if they are missing.
   *
   * @throws InstallError; EngineError; the signal's reason.
   */
  readonly borrow: (
    spec: SandboxSpec,
    wanted: WantedPackages,
    signal: AbortSignal,
  ) => Promise<BundleLoan>;
  /**
   * Unpacks the files of an image, so that its first job does not wait for them. Does nothing if jobs are not
   * forked. While that is not known yet, it waits for nothing and unpacks them later.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly unpack: (image: string, signal: AbortSignal) => Promise<void>;
  /** Waits for a probe. Forks no job if none has passed since the last failure. */
  readonly open: OpenFork;
  /**
   * Lends an input file. Puts it into the volume first if it is missing.
   *
   * @throws JobRefusal; EngineError; the disk's errors; the signal's reason.
   */
  readonly borrowFile: (
    tenant: string,
    file: InputFile,
    signal: AbortSignal,
  ) => Promise<BundleLoan>;
  /** Whether the container with this label is a mother or writes the volumes, and is not removed. */
  readonly owns: (label: string) => boolean;
  readonly close: () => Promise<void>;
}

export interface ForksDeps extends MotherDeps, Pick<ZygotesDeps, "zygoteStartMs"> {
  /** `maxBytes` also limits all bundles together. */
  readonly packages: InstallLimits & {
    /** Whether bundles that no job uses are kept for later jobs. */
    readonly keepsUnused: boolean;
  };
  readonly log: Logger;
}

export function createForks(deps: ForksDeps): Forks {
  const { log } = deps;
  const keeper = createMotherKeeper(deps);
  const rootfs = createRootfsStore(keeper.volume);
  const zygotes = createZygotes({ ...deps, mother: keeper.current, rootfs });
  const bundles = createBundles({ ...keeper.volume, ...deps.packages, log });
  /** A secret in the names of file bundles: a hostile image that knows a file's hash must not find the file. */
  const secret = randomUUID();
  const openFork = createOpenFork({ zygoteFor, zygotes, log });
  const health = createForkHealth(
    async (signal) => probeSandbox(openFork, deps.mother, await deps.motherImage(signal), signal),
    log,
  );

  function zygoteFor(spec: SandboxSpec, signal: AbortSignal): Promise<ReadyZygote> {
    const found = zygotes.of(spec).catch((error: unknown) => {
      health.noteFailure(error);
      throw error;
    });
    return abortable(found, signal);
  }

  return {
    ...health,
    prepare: async (spec, signal) => (await zygoteFor(spec, signal)).zygote.tookMs,
    borrow: (spec, wanted, signal) =>
      bundles.borrow(
        { tenant: wanted.tenant, content: wanted.key },
        (keep, limit) => installApart(keeper.volume, spec, wanted, deps.packages, keep, limit),
        signal,
        wanted.took,
      ),
    borrowFile: (tenant, file, signal) => borrowFile(bundles, secret, tenant, file, signal),
    async open(spec, signal, ...more) {
      await health.probed(signal);
      const problem = health.problem();
      if (problem !== null)
        throw new EngineError("not_forked", `jobs are not forked here: ${problem}`);
      return openFork(spec, signal, ...more);
    },
    async unpack(image, signal) {
      const isKnown = health.problem() === null;
      const unpacked = health.probed(signal).then(async () => {
        if (health.problem() !== null) return;
        const imageId = await deps.engine.imageId(image, signal);
        if (imageId !== null) await rootfs.prepare(imageId, signal);
      });
      if (isKnown) await unpacked;
      else unpacked.catch(() => {}); // its first job says why
    },
    owns: keeper.owns,
    async close() {
      await Promise.all([bundles.close(), rootfs.close()]);
      await keeper.close();
    },
  };
}

/** The runtimes under which a fork is isolated as a container is. */
const plainRuntimes: readonly (string | null)[] = [null, "runc", "crun"];

/** Why such a sandbox needs a container of its own; null if it can be forked. */
export function whyNotForked(spec: SandboxSpec): string | null {
  if (!plainRuntimes.includes(spec.runtime)) return `the runtime is ${spec.runtime}`;
  if (spec.network !== "none") return `the network is ${spec.network}`;
  if (spec.gpus.length > 0) return "it has GPUs";
  return spec.packages === "none" ? null : "packages are installed in it";
}
