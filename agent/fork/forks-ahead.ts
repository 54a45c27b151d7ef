import { abortable } from "../waiting/abortable.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import { withSpare } from "../container/pool/spare.ts";

type Open = (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;

/** A way to open forks. One fork of each recent kind waits for the kind's next job. */
export interface ForksAhead {
  readonly open: Open;
  /** Opens a fork for the next job of its kind, if there is none and no job waits for a fork. */
  readonly prepare: (spec: SandboxSpec) => void;
  /** Closes the forks that wait, and opens no more ahead. */
  readonly close: () => Promise<void>;
}

/** How long the opening of a fork ahead may take, in ms. */
const openMs = 300_000;
/** For how many kinds a fork may wait. */
const mostKinds = 4;

/**
 * Opens the next fork of a kind when a job of the kind has ended, so that jobs that come one after
 * the other do not wait for it.
 *
 * @param idleMs how long a fork may wait for its job; 0: none waits.
 */
export function createForksAhead(openFork: Open, idleMs: number): ForksAhead {
  const ahead = new Map<string, Promise<Sandbox>>();
  let opening = 0;
  const end = new AbortController();

  async function open(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    opening += 1;
    try {
      return await openFork(spec, signal);
    } finally {
      opening -= 1;
    }
  }

  async function drop(key: string, fork: Promise<Sandbox>): Promise<void> {
    if (ahead.get(key) !== fork) return;
    ahead.delete(key);
    await close(fork);
  }

  function prepare(spec: SandboxSpec): void {
    const key = JSON.stringify(spec);
    if (idleMs === 0 || end.signal.aborted || opening > 0 || ahead.has(key)) return;
    const fork = openFork(spec, AbortSignal.any([end.signal, AbortSignal.timeout(openMs)]));
    ahead.set(key, fork);
    const dropIt = (): void => void drop(key, fork);
    setTimeout(dropIt, idleMs).unref();
    fork.then(({ died }) => died.addEventListener("abort", dropIt), dropIt);
    const [oldest] = ahead;
    if (ahead.size > mostKinds && oldest) void drop(...oldest);
  }

  /** Null if none waits, or if it could not be opened. */
  async function take(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox | null> {
    const key = JSON.stringify(spec);
    const fork = ahead.get(key);
    if (!fork) return null;
    ahead.delete(key);
    try {
      return withSpare(await abortable(fork, signal), (limit) => open(spec, limit));
    } catch (error) {
      if (!signal.aborted) return null;
      void close(fork);
      throw error;
    }
  }

  return {
    open: async (spec, signal) => (await take(spec, signal)) ?? (await open(spec, signal)),
    prepare,
    async close() {
      end.abort(new Error("the agent has stopped"));
      await Promise.all([...ahead].map((entry) => drop(...entry)));
    },
  };
}

async function close(fork: Promise<Sandbox>): Promise<void> {
  await fork.then(
    (sandbox) => sandbox.close(),
    () => {},
  );
}
