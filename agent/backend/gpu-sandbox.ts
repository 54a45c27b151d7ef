import { backoffMs } from "../waiting/backoff.ts";
import type { Clock } from "../waiting/clock.ts";
import type { Gpus } from "./gpus.ts";
import type { StartSandbox } from "../container/container-source.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

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
