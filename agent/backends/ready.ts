import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { PoolKind } from "../../shared/wire/health.ts";
import type { SandboxJob } from "../sandbox/job.ts";
import { EngineError, kindKey, type Sandbox, type SandboxRequest } from "../sandbox/sandbox.ts";
import { abortable, backoffMs, type Clock, deadline } from "../waiting.ts";

export interface KindCount {
  readonly request: SandboxRequest;
  readonly ready: number;
  readonly starting: number;
}

interface ReadyListDeps {
  readonly open: (
    request: SandboxRequest,
    signal: AbortSignal,
    job?: SandboxJob,
  ) => Promise<Sandbox>;
  /** Sandboxes for each kind, and for all kinds together. */
  readonly perKind: number;
  readonly most: number;
  /** How many sandboxes may be opening ahead at the same time. */
  readonly starters: number;
  /** How long a kind is kept after its last request, and the longest that a sandbox waits, in ms. */
  readonly idleMs: number;
  /** How long openings in progress may take after `close`, in ms. */
  readonly graceMs: number;
  readonly mayOpen: () => boolean;
  /** Is called when a sandbox could not be opened ahead. Its kind is not tried again for `restMs`. */
  readonly failed: (request: SandboxRequest, error: unknown, restMs: number) => void;
  /** Closes a sandbox that no job took. */
  readonly discard: (sandbox: Sandbox) => void;
  /** Is called when a sandbox is ready or gone. */
  readonly changed: () => void;
  readonly clock: Clock;
}

interface Entry {
  readonly sandbox: Promise<Sandbox>;
  readonly sinceMs: number;
  isOpen: boolean;
}

interface Kind {
  readonly request: SandboxRequest;
  readonly entries: Entry[];
  askedMs: number;
  /** Failures in a row, and when the next try may be. */
  failures: number;
  restUntilMs: number;
}

const tickMs = 15_000;
/** After a job has come, the list waits this long before it opens sandboxes: most jobs have then ended. */
const quietMs = 100;
const [firstRestMs, longestRestMs] = [500, 60_000];

/** Sandboxes that are opened before their jobs come: some of each kind that jobs have lately asked for. */
export function createReadyList(deps: ReadyListDeps) {
  const { perKind, idleMs, clock } = deps;
  /** By key; the kind that was asked for longest ago is first. */
  const kinds = new Map<string, Kind>();
  /** How many openings a job waits for. */
  let awaited = 0;
  let isQuiet = true;
  const end = new AbortController();
  const halt = new AbortController();

  function ask(request: SandboxRequest): Kind {
    const key = kindKey(request);
    const never = { askedMs: 0, failures: 0, restUntilMs: 0 };
    const kind: Kind = kinds.get(key) ?? { request, entries: [], ...never };
    kinds.delete(key);
    kinds.set(key, kind);
    kind.askedMs = clock.nowMs();
    return kind;
  }

  /** Opens what is missing, unless a job waits for a sandbox. Closes what has waited for too long. */
  function fill(): void {
    if (end.signal.aborted) return;
    const nowMs = clock.nowMs();
    const isOld = (ms: number): boolean => ms <= nowMs - idleMs;
    const mayOpen = awaited === 0 && deps.mayOpen();
    let room = deps.most;
    for (const [key, kind] of [...kinds].toReversed()) {
      const { entries, request } = kind;
      // Sandboxes with a GPU are not kept ready: they would hold the device.
      const isKept = request.spec.gpus.length === 0 && !isOld(kind.askedMs);
      const share = isKept ? Math.min(perKind, room) : 0;
      room -= share;
      for (const entry of entries.filter(({ sinceMs }, n) => n >= share || isOld(sinceMs)))
        drop(kind, entry);
      const missing = mayOpen && kind.restUntilMs <= nowMs ? share - entries.length : 0;
      const most = Math.min(missing, deps.starters - starting());
      for (let n = 0; n < most; n++) begin(kind);
      if (isOld(kind.askedMs)) kinds.delete(key);
    }
  }

  function starting(): number {
    return [...kinds.values()].flatMap(({ entries }) => entries).filter(({ isOpen }) => !isOpen)
      .length;
  }

  function begin(kind: Kind): void {
    const sandbox = deps.open(kind.request, halt.signal);
    const entry: Entry = { sandbox, sinceMs: clock.nowMs(), isOpen: false };
    kind.entries.push(entry);
    sandbox
      .then(
        ({ died }) => {
          entry.isOpen = true;
          kind.failures = 0;
          const leave = (): void => {
            if (drop(kind, entry)) fill();
          };
          died.addEventListener("abort", leave, { once: true });
          if (died.aborted) leave();
        },
        (error: unknown) => {
          remove(kind, entry);
          if (!halt.signal.aborted) rest(kind, error);
        },
      )
      .finally(() => {
        deps.changed();
        fill();
      });
  }

  function rest(kind: Kind, error: unknown): void {
    // Such as a missing image. Nothing is opened until the next job of this kind.
    if (error instanceof EngineError && !error.transient) kind.askedMs = 0;
    kind.failures += 1;
    const restMs = backoffMs(kind.failures, firstRestMs, longestRestMs);
    kind.restUntilMs = clock.nowMs() + restMs;
    clock.sleep(restMs, end.signal).then(fill, () => {});
    deps.failed(kind.request, error, restMs);
  }

  function remove({ entries }: Kind, entry: Entry): boolean {
    const at = entries.indexOf(entry);
    if (at >= 0) entries.splice(at, 1);
    return at >= 0;
  }

  function drop(kind: Kind, entry: Entry): boolean {
    if (!remove(kind, entry)) return false;
    entry.sandbox.then(deps.discard, () => {});
    deps.changed();
    return true;
  }

  async function open(...asked: Parameters<ReadyListDeps["open"]>): Promise<Sandbox> {
    awaited += 1;
    try {
      return await deps.open(...asked);
    } finally {
      awaited -= 1;
    }
  }

  /** Returns null if no sandbox waits, or if it could not be opened. */
  async function takeWaiting(kind: Kind, signal: AbortSignal): Promise<Sandbox | null> {
    const entry = kind.entries.find(({ isOpen }) => isOpen) ?? kind.entries[0];
    if (!entry) return null;
    remove(kind, entry);
    try {
      return await abortable(entry.sandbox, signal);
    } catch (error) {
      if (!signal.aborted) return null;
      // The job no longer wants it. The next one may have it.
      kind.entries.unshift(entry);
      if (end.signal.aborted || kinds.get(kindKey(kind.request)) !== kind) drop(kind, entry);
      throw error;
    }
  }

  function fillSoon(): void {
    if (!isQuiet) return;
    isQuiet = false;
    const wake = (): void => {
      isQuiet = true;
      fill();
    };
    clock.sleep(quietMs, end.signal).then(wake, () => {});
  }

  async function tick(): Promise<void> {
    while (!end.signal.aborted) {
      await clock.sleep(Math.min(tickMs, idleMs / 4), end.signal).catch(() => {});
      fill();
    }
  }
  if (perKind > 0) void tick();

  return {
    /**
     * Takes a sandbox from the list, open or still opening. Opens another one if there is none, and only that one may
     * get the job before it is ready.
     *
     * @throws EngineError; the signal's reason.
     */
    async take(...[request, signal, job]: Parameters<ReadyListDeps["open"]>): Promise<Sandbox> {
      signal.throwIfAborted();
      const kind = ask(request);
      fillSoon();
      const waiting = await takeWaiting(kind, signal);
      if (waiting === null) return open(request, signal, job);
      return withSpare(waiting, (limit) => open(request, limit, job));
    },
    keepReadyFor: (request: SandboxRequest): void => {
      ask(request);
      fill();
    },
    fill,
    kinds: (): readonly KindCount[] =>
      [...kinds.values()].map(({ request, entries }) => {
        const ready = entries.filter(({ isOpen }) => isOpen).length;
        return { request, ready, starting: entries.length - ready };
      }),
    /** Opens no more sandboxes ahead, and closes those that wait. `take` still opens sandboxes for jobs. */
    async close(): Promise<void> {
      end.abort();
      using grace = deadline(clock, deps.graceMs);
      grace.signal.addEventListener("abort", () => halt.abort(new Error("the agent has stopped")));
      const entries = [...kinds.values()].flatMap((kind) => kind.entries.splice(0));
      const waiting = await Promise.allSettled(entries.map(({ sandbox }) => sandbox));
      for (const each of waiting) if (each.status === "fulfilled") deps.discard(each.value);
    },
  };
}

/**
 * Wraps a waiting container. If its first use shows that it died before the code started, a fresh
 * container replaces it: nothing else reports a death between the last check and the use.
 */
export function withSpare(
  waiting: Sandbox,
  startSpare: (signal: AbortSignal) => Promise<Sandbox>,
): Sandbox {
  const all = [waiting];
  let current = waiting;
  let isUntouched = true;

  async function use<T>(signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    try {
      return await task();
    } catch (error) {
      if (!(error instanceof EngineError) || !isUntouched || signal.aborted) throw error;
      current = await startSpare(signal);
      all.push(current);
      return await task();
    } finally {
      isUntouched = false;
    }
  }

  return {
    get backend() {
      return current.backend;
    },
    get containerId() {
      return current.containerId;
    },
    get pythonVersion() {
      return current.pythonVersion;
    },
    get preloadErrors() {
      return current.preloadErrors;
    },
    get startupMs() {
      return current.startupMs;
    },
    get hasPackages() {
      return current.hasPackages;
    },
    get mounted() {
      return current.mounted;
    },
    get died() {
      return current.died;
    },
    install: (packages, signal) => use(signal, () => current.install(packages, signal)),
    giveFiles: (files, signal) => use(signal, () => current.giveFiles(files, signal)),
    run: (job, options) => use(options.signal, () => current.run(job, options)),
    beginSession(env) {
      isUntouched = false;
      current.beginSession(env);
    },
    whyDied: () => current.whyDied(),
    async close() {
      await Promise.all(all.map((sandbox) => sandbox.close()));
    },
  };
}

/** The counts of the kind that a request belongs to, made with zeros where it is new. */
export function poolKindOf(
  kinds: Map<string, PoolKind>,
  { jobType, spec: { runtime } }: SandboxRequest,
  backend: PoolKind["backend"],
): PoolKind {
  const key = JSON.stringify([jobType, runtime]);
  const none = { ready: 0, starting: 0, in_use: 0 };
  const kind = kinds.get(key) ?? { job_type: jobType, runtime, backend, ...none };
  kinds.set(key, kind);
  return kind;
}

/**
 * Tasks that remove containers or make them ready again. Only the agent's end waits for them. `onFailure` is called
 * when the engine fails a task.
 */
export function createBackgroundTasks(log: Logger, onFailure: () => void) {
  const underWay = new Set<Promise<void>>();

  /** Starts a task; the promise resolves when it has ended, even if it failed. */
  function start(task: () => Promise<void>): Promise<void> {
    const running = task()
      .catch((error: unknown) => {
        log.warn("could not remove a container, trying again later: {reason}", {
          reason: describeError(error),
        });
        onFailure();
      })
      .finally(() => underWay.delete(running));
    underWay.add(running);
    return running;
  }

  async function whenIdle(): Promise<void> {
    while (underWay.size > 0) await Promise.all(underWay);
  }

  return { start, count: () => underWay.size, whenIdle };
}
