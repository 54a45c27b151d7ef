import { once } from "node:events";
import type { Logger } from "@logtape/logtape";
import { z } from "zod";
import { describeError } from "../../shared/log-line.ts";
import { ownerOf, toEvict } from "../policy/evict.ts";
import { abortable } from "../waiting/abortable.ts";
import { tooLarge } from "../sandbox/conversation/install-packages.ts";
import { InstallError, type KeepPiece } from "../sandbox/package-request.ts";
import { encodeFrame } from "../sandbox/protocol/frames.ts";
import { parseMessage } from "../sandbox/protocol/messages.ts";
import { EngineError } from "../sandbox/errors.ts";
import { bundlesProgram } from "../python/program.ts";
import {
  createVolumes,
  nameInVolume,
  startUnpacker,
  type Unpacker,
  type VolumeDeps,
} from "./unpacker.ts";

/** The bundles in the volume that mothers read. A job finds one at /packages, and one for each large file in /input. */
export interface Bundles {
  /**
   * Lends the bundle of a key until it is given back. Has it installed first if it is missing. Jobs that
   * ask for it meanwhile share the installation; it ends early when all of them have given up.
   *
   * @param keeps whether it is kept when no job uses it; default: `keepsUnused`.
   * @param took is told the milliseconds that this job waited for the installation.
   * @throws InstallError; EngineError; the signal's reason; whatever `install` throws.
   */
  readonly borrow: (
    key: BundleKey,
    install: InstallBundle,
    signal: AbortSignal,
    took: (installMs: number) => void,
    keeps?: boolean,
  ) => Promise<BundleLoan>;
  /** Ends installations; resolves when neither one nor a removal is pending. */
  readonly close: () => Promise<void>;
}

/** Jobs of one tenant with the same content share a bundle. */
export interface BundleKey {
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

export interface BundlesDeps extends VolumeDeps {
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

export function createBundles(deps: BundlesDeps): Bundles {
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
    async borrow({ tenant, content }, install, signal, took, keeps = keepsUnused) {
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
    async close() {
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

interface Writer {
  readonly write: KeepPiece;
  readonly report: Promise<z.infer<typeof Report>>;
}

function writerOf(unpacker: Unpacker, limit: AbortSignal): Writer {
  const { input } = unpacker;
  const ended = new AbortController();
  const report = readReport(unpacker).finally(() => ended.abort());
  report.catch(() => {});
  const stop = AbortSignal.any([limit, ended.signal]);
  return {
    report,
    async write(piece) {
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
