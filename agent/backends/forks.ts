import { randomUUID } from "node:crypto";
import { tmpdir } from "node:os";
import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { AgentIdentity } from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { Engine } from "../engine/engine.ts";
import { openConversation } from "../sandbox/conversation.ts";
import type { InputFile, SandboxJob, WantedPackages } from "../sandbox/job.ts";
import {
  EngineError,
  hostname,
  plainSpec,
  type Sandbox,
  type SandboxSpec,
  temporaryFileSizes,
} from "../sandbox/sandbox.ts";
import { isCutShort } from "../sandbox/verdict.ts";
import { abortable } from "../waiting.ts";
import { type Mother, startMother, type Zygote } from "./mother.ts";
import type { MotherSpec } from "./profiles.ts";
import {
  borrowFile,
  bundlesVolume,
  createBundles,
  createRootfsStore,
  createVolumes,
  installApart,
  type InstallLimits,
  rootfsVolume,
  type VolumeDeps,
} from "./volumes.ts";
import {
  createZygotes,
  mostZygotes,
  type ReadyZygote,
  type Zygotes,
  type ZygotesDeps,
} from "./zygotes.ts";

export type Forks = ReturnType<typeof createForks>;

export interface ForksDeps extends MotherDeps, Pick<ZygotesDeps, "zygoteStartMs"> {
  /** `maxBytes` also limits all bundles together. */
  readonly packages: InstallLimits & {
    /** Whether bundles that no job uses are kept for later jobs. */
    readonly keepsUnused: boolean;
  };
  readonly log: Logger;
}

/** Sandboxes that are forks of a running interpreter. */
export function createForks(deps: ForksDeps) {
  const { log } = deps;
  const keeper = createMotherKeeper(deps);
  const rootfs = createRootfsStore(keeper.volume);
  const zygotes = createZygotes({ ...deps, mother: keeper.current, rootfs });
  const bundles = createBundles({ ...keeper.volume, ...deps.packages, log });
  /** Of the containers of installations. */
  let removed = Promise.resolve();
  /** A secret in the names of file bundles: a hostile image that knows a file's hash must not find the file. */
  const secret = randomUUID();
  const openFork = createOpenFork(zygoteFor, zygotes, log);
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
    problem: health.problem,
    probed: health.probed,
    /**
     * Starts the zygote for jobs of this kind. Tells how many ms the import of each module of its preload took.
     *
     * @throws NotForkable if it needs a container of its own; EngineError; the signal's reason.
     */
    prepare: async (spec: SandboxSpec, signal: AbortSignal) =>
      (await zygoteFor(spec, signal)).zygote.tookMs,
    /**
     * Lends the packages that a job of this kind wants. Installs them first if they are missing.
     *
     * @throws InstallError; EngineError; the signal's reason.
     */
    borrow: (spec: SandboxSpec, wanted: WantedPackages, signal: AbortSignal) =>
      bundles.borrow(
        { tenant: wanted.tenant, content: wanted.key },
        (keep, limit) =>
          installApart(keeper.volume, spec, wanted, deps.packages, keep, limit, (removal) => {
            removed = removed.then(() => removal);
          }),
        signal,
        wanted.took,
      ),
    /**
     * Lends an input file. Puts it into the volume first if it is missing.
     *
     * @throws JobRefusal; EngineError; the disk's errors; the signal's reason.
     */
    borrowFile: (tenant: string, file: InputFile, signal: AbortSignal) =>
      borrowFile(bundles, secret, tenant, file, signal),
    /** Waits for a probe. Forks no job if none has passed since the last failure. */
    async open(...[spec, signal, ...more]: Parameters<OpenFork>): Promise<Sandbox> {
      await health.probed(signal);
      const problem = health.problem();
      if (problem !== null)
        throw new EngineError("not_forked", `jobs are not forked here: ${problem}`);
      return openFork(spec, signal, ...more);
    },
    /**
     * Unpacks the files of an image, so that its first job does not wait for them. Does nothing if jobs are not
     * forked. While that is not known yet, it waits for nothing and unpacks them later.
     *
     * @throws EngineError; the signal's reason.
     */
    async unpack(image: string, signal: AbortSignal): Promise<void> {
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
    async close(): Promise<void> {
      await Promise.all([bundles.close(), rootfs.close()]);
      await removed;
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

/** The bundles that a job finds mounted in its sandbox: packages and input files. */
interface Provided {
  readonly packages: { readonly bundle: string; readonly requirements: readonly string[] } | null;
  readonly files: readonly { readonly bundle: string; readonly name: string }[];
}

/**
 * Opens a fork. A job that is `ahead` begins as soon as the fork is ready: it saves a way through the engine.
 *
 * @throws NotForkable if it needs a container of its own; EngineError; the signal's reason.
 */
type OpenFork = (
  spec: SandboxSpec,
  signal: AbortSignal,
  provided?: Provided,
  ahead?: SandboxJob,
) => Promise<Sandbox>;

/** A zygote that takes longer may hang. A fork takes a tenth of this on a busy machine. */
const forkMs = 1000;

/** Forks sandboxes from zygotes. `zygoteFor` finds the zygote for jobs of a kind. */
function createOpenFork(
  zygoteFor: (spec: SandboxSpec, signal: AbortSignal) => Promise<ReadyZygote>,
  zygotes: Pick<Zygotes, "replace">,
  log: Logger,
): OpenFork {
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

const probeBytes = 64 * 1024 ** 2;
const probePids = 32;

/** Prints what is wrong with the sandbox that it runs in; nothing if all is well. */
const probeCode = String.raw`
import os, socket
def read(path):
    with open(path) as file:
        return file.read()
status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
def expect(what, found, wanted):
    if found != wanted:
        print("%s is %r, not %r" % (what, found, wanted))
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    expect(name, int(status[name], 16), 0)
expect("NoNewPrivs", status["NoNewPrivs"].strip(), "1")
expect("Seccomp", status["Seccomp"].strip(), "2")
expect("the user", os.getresuid() + os.getresgid(), (1000,) * 6)
expect("the groups", os.getgroups(), [])
expect("PID 1's child", os.getppid(), 1)
expect("the interfaces", os.listdir("/sys/class/net"), ["lo"])
mounts = [line.split() for line in read("/proc/self/mountinfo").splitlines()]
writable = {words[4] for words in mounts if "rw" in words[5].split(",")}
expect("what is writable", sorted(writable & {"/", "/sys", "/proc/sys", "/sys/fs/cgroup"}), [])
for limit, wanted in (
    (("memory.max", "memory/memory.limit_in_bytes"), "${probeBytes}"),
    (("pids.max", "pids/pids.max"), "${probePids}"),
):
    paths = [path for path in ("/sys/fs/cgroup/" + name for name in limit) if os.path.exists(path)]
    expect(limit[0], [read(path).strip() for path in paths], [wanted])
try:
    os.open("/etc/airlock-probe", os.O_CREAT | os.O_WRONLY)
    print("the root is writable")
except OSError:
    pass
expect("localhost", socket.gethostbyname("localhost"), "127.0.0.1")
`;

/**
 * Runs a job that looks at its own sandbox.
 *
 * @throws EngineError that says what is wrong; the signal's reason.
 */
async function probeSandbox(
  open: (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>,
  { agentId, agentName }: MotherSpec,
  image: string,
  signal: AbortSignal,
): Promise<void> {
  const sandbox = await open(
    {
      ...plainSpec,
      image,
      labels: { agentId, agentName, leaseId: null },
      memoryBytes: probeBytes,
      pids: probePids,
    },
    signal,
  );
  try {
    const caps = { streamBytes: 64 * 1024, artifactBytes: 0 };
    const job = { code: probeCode, inputJson: "{}", timeoutMs: 30_000, caps };
    const { stdout, stderr, exitStatus } = await sandbox.run(job, { signal, spoolDir: tmpdir() });
    const said = Buffer.concat([stdout, stderr]).toString("utf8").trim();
    if (said === "" && exitStatus === 0) return;
    throw new EngineError("other", `a probe job found: ${said || `exit status ${exitStatus}`}`);
  } finally {
    await sandbox.close();
  }
}

/** The problem until the first probe has ended. */
const notProbed = "the probe job has not ended yet";
/** Pause in ms after so many failed probes in a row: 5 s, doubled each time, 2 minutes at most. */
const probeAgainMs = (failures: number): number => Math.min(5000 * 2 ** (failures - 1), 120_000);
/** How long a probe may take, with the start of its mother and zygote, in ms. */
const probeMs = 300_000;

/**
 * Whether jobs can be forked on this host. They can, once a probe job has found its sandbox as it should be.
 *
 * @param probe runs the probe job; rejects where it finds a fault.
 */
function createForkHealth(probe: (signal: AbortSignal) => Promise<void>, log: Logger) {
  let reason: string | null = notProbed;
  /** When the next probe is due; null while one runs, or after one that found no fault. */
  let dueMs: number | null = 0;
  /** The newest probe; never rejects. */
  let probing = Promise.resolve();
  /** Probes that failed in a row; those that did not reach the engine count as one. */
  let failures = 0;

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

  async function runProbe(): Promise<void> {
    dueMs = null;
    try {
      await probe(AbortSignal.timeout(probeMs));
      failures = 0;
      setProblem(null, null);
    } catch (error) {
      const isOutOfReach = error instanceof EngineError && error.code === "unavailable";
      failures = isOutOfReach ? 1 : failures + 1;
      setProblem(describeError(error), performance.now() + probeAgainMs(failures));
    }
  }

  /** Why jobs are not forked; null if they are. Begins a probe where one is due. */
  function problem(): string | null {
    if (dueMs !== null && performance.now() >= dueMs) probing = runProbe();
    return reason;
  }

  return {
    problem,
    /** Resolves when the newest probe has ended; rejects with the signal's reason. */
    probed: async (signal: AbortSignal): Promise<void> => {
      if (problem() !== null) await abortable(probing, signal);
    },
    /** After a mother or zygote failed to start, a probe must pass before the next job is forked. */
    noteFailure(error: unknown): void {
      if (error instanceof EngineError && error.code !== "image_not_found" && reason === null) {
        setProblem(describeError(error), 0);
      }
    },
  };
}

interface MotherDeps {
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

/** Starts the mother when it is first needed, and another one after it has ended. */
export function createMotherKeeper(deps: MotherDeps) {
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

  /** @throws EngineError */
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
    /** The volumes that the mother reads. */
    volume: { engine, spec, motherImage, ids, ownLabels } satisfies VolumeDeps,
    /** Whether the container with this label is a mother or writes the volumes, and is not removed. */
    owns: (label: string): boolean => ownLabels.has(label),
    async close(): Promise<void> {
      isClosed = true;
      await running?.catch(() => null);
      await Promise.all([...alive].map((each) => each.close()));
    },
  };
}
