import type { Logger } from "@logtape/logtape";
import type { RuntimePolicy } from "../config.ts";
import { JobRefusal } from "../job/refusal.ts";

/** Chooses the engine runtime of a container, given those the engine has; null is its default. */
export type RuntimeChoice = (runtimes: readonly string[]) => string | null;

/** The choice throws JobRefusal where it must not fall back. */
export function createRuntimeChoice(
  { runtime, strict }: RuntimePolicy,
  log: Logger,
): RuntimeChoice {
  let hasWarned = false;
  return (runtimes) => {
    if (runtime === null || runtimes.includes(runtime)) return runtime;
    if (strict) {
      throw new JobRefusal(
        "config_error",
        `security_mode strict requires the runtime ${runtime}, which this agent's engine lacks`,
      );
    }
    if (!hasWarned) log.warn("no runtime {runtime}: falling back to the engine's own", { runtime });
    hasWarned = true;
    return null;
  };
}
