import type { Deps } from "../deps.ts";
import { environment, environments, type Environment } from "../domain/environment.ts";
import { builtImages } from "../store/builds/builds.ts";

/** The environments of every job type, as they are now. */
export async function readEnvironments({ config, db }: Deps): Promise<Environment[]> {
  return environments(config, await builtImages(db));
}

/** The environment of one job type; undefined when none has that name. */
export async function readEnvironment(
  { config, db }: Deps,
  name: string,
): Promise<Environment | undefined> {
  return environment(config, await builtImages(db), name);
}
