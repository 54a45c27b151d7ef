import type { Logger } from "@logtape/logtape";
import { JobRefusal } from "../policy/refusal.ts";

/** Which engine runtime containers get; null stands for the engine's default. */
export type RuntimePolicy = {
  readonly runtime: string | null;
  /** Refuse jobs rather than fall back where the engine lacks the runtime. */
  readonly strict: boolean;
};

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
