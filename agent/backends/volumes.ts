import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { open } from "node:fs/promises";
import type { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Logger } from "@logtape/logtape";
import { z } from "zod";
import { describeError } from "../../shared/log-line.ts";
import { freed } from "../../shared/process/parts.node.ts";
import {
  type Engine,
  failedContainer,
  linkOf,
  type VolumeCalls,
  type VolumeEntry,
} from "../engine/engine.ts";
import { ownerOf, toEvict } from "../host/files.ts";
import { JobRefusal } from "../host/policy.ts";
import { bundlesProgram, unpackProgram } from "../python/program.ts";
import { encodeFrame, maxPayloadBytes, parseMessage } from "../sandbox/frames.ts";
import { tooLarge } from "../sandbox/install-packages.ts";
import {
  type InputFile,
  InstallError,
  type KeepPiece,
  type WantedPackages,
} from "../sandbox/job.ts";
import { EngineError, hostname, type SandboxSpec } from "../sandbox/sandbox.ts";
import { abortable } from "../waiting.ts";
import { openSandbox } from "./containers.ts";
import { sourceProfile, unpackProfile, type VolumeSpec } from "./profiles.ts";

export type Bundles = ReturnType<typeof createBundles>;

/** Jobs of one tenant with the same content share a bundle. */
interface BundleKey {
  readonly tenant: string;
  readonly content: string;
}

/** Installs packages and passes on their files; `keep` opens the writer for them. */
export type InstallBundle = (keep: () => Promise<KeepPiece>, signal: AbortSignal) => Promise<void>;

export interface BundleLoan {
  /** Name of the bundle in the volume. */
  readonly name: string;
  /** Safe to call twice. "missing": the bundle was not in the volume. */
  readonly giveBack: (how?: "missing") => void;
}

interface BundlesDeps extends VolumeDeps {
  /** Bytes of all bundles together. */
  readonly maxBytes: number;
  /** Whether bundles that no job uses are kept for later jobs. */
  readonly keepsUnused: boolean;
  readonly log: Logger;
}

interface Bundle {
  users: number;
  readonly keeps: boolean;
  /** Null until it is complete. */
  bytes: number | null;
  /** Bytes that its installation has sent so far. */
  sent: number;
  readonly ready: Promise<void>;
  /** Ends an installation that nobody waits for. */
  readonly end: AbortController;
}

const Report = z.object({ bundles: z.record(z.string(), z.number()), full: z.boolean() });
/** How long it may take to list the volume's bundles or to remove some, in ms. */
const tidyMs = 120_000;
/** How long a bundle may take to be installed, in ms: longer than any startup_timeout. */
const writeMs = 20 * 60_000;

/** The bundles in the volume that mothers read. A job finds one at /packages, and one for each large file in /input. */
export function createBundles(deps: BundlesDeps) {
  const { ids, maxBytes, keepsUnused, log } = deps;
  /** By name, the least recently used first. */
  const bundles = new Map<string, Bundle>();
  const unfinished = new Set<Bundle>();
  let looked: Promise<void> | null = null;
  let removed = Promise.resolve();

  /** Lists the bundles that an earlier process of this agent has left. */
  function look(): Promise<void> {
    const pending = (looked ??= removed.then(async () => {
      const limit = AbortSignal.timeout(tidyMs);
      await createVolumes(deps, limit);
      const found = await tidy([], limit);
      for (const [name, bytes] of Object.entries(found)) {
        if (!bundles.has(name)) bundles.set(name, completeBundle(bytes, keepsUnused));
      }
      trim();
    }));
    pending.catch(() => looked === pending && (looked = null));
    return pending;
  }

  async function tidy(remove: readonly string[], limit: AbortSignal) {
    const program = bundlesProgram({ ids, name: null, room: 0, remove });
    await using unpacker = await startUnpacker(deps, program, limit);
    return (await readReport(unpacker)).bundles;
  }

  /** Removes bundles that nobody uses: those that are not kept, and what does not fit. */
  function trim(): void {
    const all = [...bundles].map(([name, bundle]) => ({
      name,
      owner: name.slice(0, ownerOf("").length),
      bytes: bytesOf([bundle]),
      isUnused: bundle.users === 0 && bundle.bytes !== null,
      keeps: bundle.keeps,
    }));
    const useless = all.filter(({ isUnused, keeps }) => isUnused && !keeps);
    const rest = all.filter((one) => !useless.includes(one));
    const surplus = toEvict(rest, maxBytes, ({ isUnused }) => isUnused);
    const gone = [...useless, ...surplus].map(({ name }) => name);
    if (gone.length === 0) return;
    for (const name of gone) bundles.delete(name);
    removed = removed.then(async () => {
      try {
        await tidy(gone, AbortSignal.timeout(tidyMs));
      } catch (error) {
        log.warn("packages were not removed: {reason}", { reason: describeError(error) });
        looked = null;
      }
    });
  }

  function begin(name: string, install: InstallBundle, keeps: boolean): Bundle {
    const end = new AbortController();
    const added = Promise.resolve().then(() => add(bundle, name, install, end.signal));
    const bundle: Bundle = {
      users: 0,
      keeps,
      bytes: null,
      sent: 0,
      end,
      ready: added.then((bytes) => {
        bundle.bytes = bytes;
        trim();
      }),
    };
    unfinished.add(bundle);
    bundle.ready
      .catch(() => bundles.get(name) === bundle && bundles.delete(name))
      .finally(() => unfinished.delete(bundle));
    return bundle;
  }

  const inUse = (): number => bytesOf([...bundles.values()].filter(({ users }) => users > 0));

  /** Returns the bytes of the bundle. */
  async function add(
    bundle: Bundle,
    name: string,
    install: InstallBundle,
    signal: AbortSignal,
  ): Promise<number> {
    await removed;
    const room = Math.max(0, maxBytes - inUse());
    /** Throws once all bundles, with those that are being written, have more bytes than fit. */
    function count(piece: Uint8Array): void {
      bundle.sent += piece.length;
      if (inUse() > maxBytes) throw new InstallError(tooLarge(room));
    }
    const limit = AbortSignal.any([signal, AbortSignal.timeout(writeMs)]);
    const program = bundlesProgram({ ids, name, room, remove: [] });
    let unpacker: Unpacker | undefined;
    let writer: Writer | undefined;
    const open = async (): Promise<Writer> => {
      unpacker = await startUnpacker(deps, program, limit);
      return (writer = writerOf(unpacker, limit));
    };
    try {
      await install(async () => {
        const { write } = await open();
        return async (piece) => {
          count(piece);
          await write(piece);
        };
      }, signal);
      const { write, report } = writer ?? (await open());
      await write(encodeFrame("Z"));
      const { full, bundles: found } = await abortable(report, limit);
      if (full) throw new InstallError(tooLarge(room));
      return found[name] ?? 0;
    } finally {
      await unpacker?.[Symbol.asyncDispose]();
    }
  }

  function leave(name: string, bundle: Bundle): void {
    bundle.users -= 1;
    if (bundle.users > 0) return;
    if (bundle.bytes === null) {
      if (bundles.get(name) === bundle) bundles.delete(name);
      bundle.end.abort(new Error("no job waits for the packages any more"));
    }
    trim();
  }

  return {
    /**
     * Lends the bundle of a key until it is given back. Has it installed first if it is missing. Jobs that
     * ask for it meanwhile share the installation; it ends early when all of them have given up.
     *
     * @param keeps whether it is kept when no job uses it; default: `keepsUnused`.
     * @param took is told the milliseconds that this job waited for the installation.
     * @throws InstallError; EngineError; the signal's reason; whatever `install` throws.
     */
    async borrow(
      { tenant, content }: BundleKey,
      install: InstallBundle,
      signal: AbortSignal,
      took: (installMs: number) => void,
      keeps = keepsUnused,
    ): Promise<BundleLoan> {
      await abortable(look(), signal);
      // The name contains the range of ids: with another range, the files would have an unknown owner.
      const hash = nameInVolume([tenant, content, ids]);
      const owner = ownerOf(tenant);
      const name = `${owner}${hash.slice(owner.length)}`;
      const bundle = bundles.get(name) ?? begin(name, install, keeps);
      // Moves it to the end: the most recently used.
      bundles.delete(name);
      bundles.set(name, bundle);
      bundle.users += 1;
      if (bundle.bytes === null) {
        const beganMs = performance.now();
        try {
          await abortable(bundle.ready, signal);
        } catch (error) {
          leave(name, bundle);
          throw error;
        } finally {
          took(performance.now() - beganMs);
        }
      }
      let isLent = true;
      return {
        name,
        giveBack(how) {
          if (!isLent) return;
          isLent = false;
          if (how === "missing") {
            if (bundles.get(name) === bundle) bundles.delete(name);
            looked = null;
          }
          leave(name, bundle);
        },
      };
    },
    /** Ends installations; resolves when neither one nor a removal is pending. */
    async close(): Promise<void> {
      for (const { end } of unfinished) end.abort(new Error("the agent has stopped"));
      await Promise.allSettled([...unfinished].map(({ ready }) => ready));
      await removed;
    },
  };
}

function completeBundle(bytes: number, keeps: boolean): Bundle {
  return { users: 0, bytes, sent: 0, keeps, ready: Promise.resolve(), end: new AbortController() };
}

function bytesOf(bundles: readonly Bundle[]): number {
  return bundles.reduce((total, { bytes, sent }) => total + (bytes ?? sent), 0);
}

type Writer = ReturnType<typeof writerOf>;

function writerOf(unpacker: Unpacker, limit: AbortSignal) {
  const { input } = unpacker;
  const ended = new AbortController();
  const report = readReport(unpacker).finally(() => ended.abort());
  report.catch(() => {});
  const stop = AbortSignal.any([limit, ended.signal]);
  return {
    report,
    write: async (piece: Uint8Array): Promise<void> => {
      try {
        if (!input.write(piece)) await once(input, "drain", { signal: stop });
      } catch (cause) {
        limit.throwIfAborted();
        await report;
        throw new EngineError("other", "the packages could not be written", { cause });
      }
    },
  };
}

async function readReport(unpacker: Unpacker): Promise<z.infer<typeof Report>> {
  let said = "";
  for (let line; (line = await unpacker.nextLine()) !== undefined;) said += line;
  await unpacker.end();
  return parseMessage(Report, Buffer.from(said));
}

/**
 * Lends an input file as a bundle with the one file `content`, for all jobs of its tenant that have the same bytes.
 *
 * @throws JobRefusal if there is no room for it; EngineError; the disk's errors; the signal's reason.
 */
export async function borrowFile(
  bundles: Pick<Bundles, "borrow">,
  secret: string,
  tenant: string,
  file: InputFile,
  signal: AbortSignal,
): Promise<BundleLoan> {
  const key = { tenant, content: `file ${secret} ${file.sha256}` };
  try {
    return await bundles.borrow(key, sending(file), signal, () => {}, true);
  } catch (error) {
    if (!(error instanceof InstallError)) throw error;
    const message =
      "The agent has no room on disk for the job's files: raise its dependency_cache_bytes, which also bounds the files that forked jobs mount.";
    throw new JobRefusal("config_error", message, { cause: error });
  }
}

function sending({ path }: InputFile): InstallBundle {
  return async (keep, signal) => {
    await using file = await open(path);
    const write = await keep();
    const head = { name: "content", executable: false, mtime: Math.floor(Date.now() / 1000) };
    await write(encodeFrame("A", Buffer.from(JSON.stringify(head))));
    const options = { highWaterMark: maxPayloadBytes, autoClose: false };
    for await (const piece of freed(file.createReadStream(options))) {
      signal.throwIfAborted();
      await write(encodeFrame("D", piece as Buffer));
    }
  };
}

/** What an installation may use. The limits of the job do not apply to it. */
export interface InstallLimits {
  /** Bytes of memory for pip: the packages themselves are on disk. */
  readonly memoryBytes: number;
  /** Bytes of the packages. */
  readonly maxBytes: number;
}

/**
 * Installs packages in a container of their own, passes on their files, and lets the container be removed.
 *
 * @param removing is given the removal, which never fails.
 * @throws InstallError; EngineError; the signal's reason.
 */
export async function installApart(
  { engine, ownLabels }: Pick<VolumeDeps, "engine" | "ownLabels">,
  spec: SandboxSpec,
  { requirements, from }: WantedPackages,
  { memoryBytes, maxBytes }: InstallLimits,
  keep: () => Promise<KeepPiece>,
  signal: AbortSignal,
  removing: (removal: Promise<void>) => void,
): Promise<void> {
  const label = `install-${randomUUID()}`;
  // No limit of CPU time: pip and two compilers run there, and no code of a job or package.
  const own = { cpus: 0, memoryBytes, packages: "disk", preload: [] } as const;
  const labels = { ...spec.labels, leaseId: label };
  ownLabels.add(label);
  const forget = (): void => void ownLabels.delete(label);
  const sandbox = await openSandbox(engine, { ...spec, ...own, labels }, signal).catch(
    (error: unknown) => {
      forget();
      throw error;
    },
  );
  try {
    await sandbox.install({ requirements, from: { ...from, keep, maxBytes } }, signal);
  } finally {
    // No job waits for this: an engine takes seconds to remove many files. What is left, the reaper removes later.
    removing(
      sandbox
        .close()
        .catch(() => {})
        .finally(forget),
    );
  }
}

export type RootfsStore = ReturnType<typeof createRootfsStore>;

/**
 * How long to trust that a folder is there. Agents remove folders that no agent has asked for in a day, or sooner
 * where there are many: a zygote then fails to start, and the next one has the files unpacked again.
 */
const knownMs = 3600_000;
const unpackMs = 600_000;

/** The files of images, unpacked in the volume that mothers read. */
export function createRootfsStore(deps: VolumeDeps) {
  const program = (name: string): Buffer => unpackProgram({ ids: deps.ids, name, hostname });
  // The names depend on the range of ids and on the program that unpacks.
  const version = program("").toString("utf8");
  const nameOf = (imageId: string): string => nameInVolume([imageId, version]);
  const known = new Map<string, { readonly done: Promise<void>; readonly sinceMs: number }>();
  const end = new AbortController();

  return {
    /** Has the next call of `prepare` look for the image's files in the volume. */
    forget: (imageId: string): void => void known.delete(nameOf(imageId)),
    /**
     * The name of the folder with the image's files. Unpacks them if they are missing. Calls for one image
     * share the work.
     *
     * @throws EngineError; the signal's reason.
     */
    async prepare(imageId: string, signal: AbortSignal): Promise<string> {
      end.signal.throwIfAborted();
      const name = nameOf(imageId);
      let current = known.get(name);
      if (!current || performance.now() - current.sinceMs > knownMs) {
        const started = {
          done: unpackRoot(deps, imageId, program(name), end.signal),
          sinceMs: performance.now(),
        };
        started.done.catch(() => known.get(name) === started && known.delete(name));
        known.set(name, (current = started));
      }
      await abortable(current.done, signal);
      return name;
    },
    /** Ends what is being unpacked, and removes its containers. */
    async close(): Promise<void> {
      end.abort(new Error("the agent has stopped"));
      await Promise.allSettled([...known.values()].map(({ done }) => done));
    },
  };
}

async function unpackRoot(
  deps: VolumeDeps,
  imageId: string,
  program: Buffer,
  signal: AbortSignal,
): Promise<void> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(unpackMs)]);
  await using unpacker = await startUnpacker(deps, program, limit);
  // One line: whether the files are there already. No line: the unpacker has ended.
  const first = await unpacker.nextLine();
  const ended = unpacker.end();
  ended.catch(() => {});
  if (first?.includes("false")) await fill(deps, imageId, unpacker, ended, limit);
  await ended;
}

/** Sends the files of an image to the unpacker, until it ends. If the disk is full, it ends before it has read all. */
async function fill(
  { engine, spec }: VolumeDeps,
  imageId: string,
  { label, input }: Unpacker,
  ended: Promise<void>,
  limit: AbortSignal,
): Promise<void> {
  const source = await engine.create(sourceProfile(spec, imageId, label), callLimit());
  const enough = new AbortController();
  ended.catch(() => {}).finally(() => enough.abort());
  const signal = AbortSignal.any([limit, enough.signal]);
  try {
    const files: Readable = await engine.exportFiles(source, limit);
    await pipeline(files, input, { signal }).catch(async (error: unknown) => {
      limit.throwIfAborted();
      // Throws the unpacker's own error, if it failed.
      await ended;
      throw error;
    });
  } finally {
    await engine.remove(source, callLimit()).catch(() => {});
  }
}

/** The volumes that the mothers of an agent read, and what a container needs that writes in them. */
export interface VolumeDeps {
  readonly engine: Engine;
  readonly spec: VolumeSpec;
  /** Looks the image up whose Python unpacks. */
  readonly motherImage: (signal: AbortSignal) => Promise<string>;
  /** First id of the range that zygotes get, and its length. */
  readonly ids: readonly [first: number, count: number];
  /** Labels of containers that are alive; an unpacker adds its own. */
  readonly ownLabels: Set<string>;
}

/** A container that writes in the volumes. Disposing of it removes it. */
interface Unpacker extends AsyncDisposable {
  readonly label: string;
  readonly input: Writable;
  /** Resolves to the next line that it prints; undefined if it has ended. */
  readonly nextLine: () => Promise<string | undefined>;
  /** @throws EngineError unless it has ended well; the limit's reason. */
  readonly end: () => Promise<void>;
}

/** For one call of the engine. */
const callLimit = (): AbortSignal => AbortSignal.timeout(30_000);
/** How long an unpacker may take to clear away what it has not completed, in ms. */
const clearMs = 10_000;

/** The name of a folder in a volume: a hash of everything that decides what is in it. */
function nameInVolume(content: readonly unknown[]): string {
  return createHash("sha256").update(JSON.stringify(content)).digest("hex").slice(0, 32);
}

/** Makes the volumes if they are missing. */
export async function createVolumes(
  { engine, spec }: Pick<VolumeDeps, "engine" | "spec">,
  limit: AbortSignal,
): Promise<void> {
  await engine.createVolume(spec.rootfs, "", limit);
  await engine.createVolume(spec.bundles, spec.agentName, limit);
}

/**
 * Starts a container that runs a program with the rights to write in the volumes.
 *
 * @throws EngineError; the limit's reason. No container is left then.
 */
async function startUnpacker(
  { engine, spec, motherImage, ownLabels }: VolumeDeps,
  program: Buffer,
  limit: AbortSignal,
): Promise<Unpacker> {
  const label = `unpack-${randomUUID()}`;
  ownLabels.add(label);
  const forget = (): void => void ownLabels.delete(label);
  try {
    const image = await motherImage(limit);
    const id = await engine.create(unpackProfile(spec, image, label), callLimit());
    const remove = (): Promise<void> =>
      engine
        .remove(id, callLimit())
        .catch(() => {})
        .finally(forget);
    try {
      const link = linkOf(await engine.attach(id, limit));
      link.input.write(program);
      await engine.start(id, limit);
      const said = link.output[Symbol.asyncIterator]();
      let hasEnded = false;
      return {
        label,
        input: link.input,
        async nextLine() {
          const next = await said.next();
          return next.done ? undefined : Buffer.from(next.value).toString("utf8");
        },
        async end() {
          // If it ends before it has read all of its input, its output stream fails too.
          while (!(await said.next().catch(() => ({ done: true }))).done);
          await engine.wait(id, limit);
          hasEnded = true;
          const { exitCode } = await engine.inspect(id, callLimit());
          if (exitCode !== 0) failedContainer("files were not unpacked", link.diagnostics());
        },
        async [Symbol.asyncDispose]() {
          // At the end of its input it removes what it has begun.
          link.destroy();
          if (!hasEnded) await engine.wait(id, AbortSignal.timeout(clearMs)).catch(() => {});
          await remove();
        },
      };
    } catch (error) {
      await remove();
      throw error;
    }
  } catch (error) {
    forget();
    throw error;
  }
}

/** The volume with the files of images, for all mothers whose ids begin here. */
export const rootfsVolume = (firstId: number): string => `airlock-rootfs-${firstId}`;

/** The volume with the packages of an agent's jobs. */
export function bundlesVolume(agentName: string): string {
  return `airlock-bundles-${createHash("sha256").update(agentName).digest("hex").slice(0, 16)}`;
}

/**
 * How long a volume must be unused before another agent removes it, in ms. An agent that forks jobs
 * always has a container that uses its volume. An agent that comes back later installs its packages again.
 */
const unusedMs = 3600_000;

/**
 * Returns a function that removes the volumes of agents that are gone, and returns how many. An agent
 * counts as gone if its volume was unused at each call for an hour.
 *
 * @param own names of this agent's volumes.
 * @throws (the returned function) EngineError; the signal's reason.
 */
export function createVolumeReaper(
  engine: Pick<VolumeCalls, "unusedVolumes" | "removeVolume">,
  own: readonly string[],
  nowMs: () => number,
): (signal: AbortSignal) => Promise<number> {
  /** When volumes were first seen unused. */
  let sinceMs = new Map<string, number>();

  return async (signal) => {
    const unused = (await engine.unusedVolumes(signal)).filter(
      (volume) => isOfMother(volume) && !own.includes(volume.name),
    );
    const now = nowMs();
    sinceMs = new Map(unused.map(({ name }) => [name, sinceMs.get(name) ?? now]));
    const doomed = [...sinceMs].filter(([, since]) => now - since >= unusedMs);
    for (const [name] of doomed) {
      // A volume that cannot be removed is tried again in an hour.
      sinceMs.delete(name);
      await engine.removeVolume(name, signal);
    }
    return doomed.length;
  };
}

/** Checks the name too, because an agent may have volumes that are not for mothers. */
function isOfMother({ name, agentName }: VolumeEntry): boolean {
  return agentName === "" ? /^airlock-rootfs-\d+$/.test(name) : name === bundlesVolume(agentName);
}
