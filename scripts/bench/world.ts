import type Docker from "dockerode";
import type { Engine } from "../../agent/engine/engine.ts";
import { type Service, type ServiceOptions, startService } from "./service.ts";

/** What a row measures with. */
export type World = {
  readonly engine: Engine;
  readonly docker: Docker;
  readonly dockerHost: string;
  /** The image of the default job type. */
  readonly image: string;
  /** Few samples: whether it works, not how fast. */
  readonly quick: boolean;
  /** `full` of something, or the few that are enough to see that it works. */
  readonly samples: (full: number) => number;
  /** API and agent as `npm start` runs them, gone with all they made once disposed of. */
  readonly startService: (options?: ServiceOptions) => Promise<Service>;
};

const QUICK_SAMPLES = 2;

export function createWorld(
  given: Pick<World, "engine" | "docker" | "dockerHost" | "image" | "quick">,
): World {
  const { engine, dockerHost, quick } = given;
  return {
    ...given,
    samples: (full) => (quick ? Math.min(QUICK_SAMPLES, full) : full),
    startService: (options) => startService(engine, dockerHost, options),
  };
}
