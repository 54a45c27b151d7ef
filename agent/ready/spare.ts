import { EngineError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

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
