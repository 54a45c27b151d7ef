import type { Logger } from "@logtape/logtape";
import { JobRefusal } from "../policy/refusal.ts";

/** Which runtime containers get; null means the engine's default. */
export type RuntimePolicy = {
  readonly runtime: string | null;
  /** If the engine lacks the runtime, refuse jobs instead of using its default. */
  readonly strict: boolean;
};

/**
 * Chooses a container's runtime from those that the engine has; null means the engine's default.
 */
export type RuntimeChoice = (runtimes: readonly string[]) => string | null;

/** The returned function throws JobRefusal if it must not fall back. */
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
    if (!hasWarned)
      log.warn("the engine lacks the runtime {runtime}: its default is used instead", { runtime });
    hasWarned = true;
    return null;
  };
}
