import { EngineError, type Sandbox } from "../sandbox/types.ts";

/**
 * A container that waited, with a fresh one in its place where it turns out to have died before the
 * code began: between the last look at it and its use nothing else tells.
 */
export function withSpare(
  waited: Sandbox,
  startSpare: (signal: AbortSignal) => Promise<Sandbox>,
): Sandbox {
  let current = waited;
  const dead: Sandbox[] = [];
  return {
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
    get died() {
      return current.died;
    },
    async run(job, options) {
      try {
        return await current.run(job, options);
      } catch (error) {
        if (!(error instanceof EngineError) || options.signal.aborted) throw error;
        dead.push(current);
        current = await startSpare(options.signal);
        return current.run(job, options);
      }
    },
    async close() {
      await Promise.all([...new Set([...dead, current])].map((sandbox) => sandbox.close()));
    },
  };
}
