import type { Deps } from "../deps.ts";
import type { AnyDb } from "../store/tenant.ts";
import { environment, environments, type Environment } from "../domain/environment.ts";
import { builtImages } from "../store/builds/builds.ts";

type WithImages = Pick<Deps, "config"> & { db: AnyDb };

/** Reads the present environments of all job types. */
export async function readEnvironments({ config, db }: WithImages): Promise<Environment[]> {
  return environments(config, await builtImages(db));
}

/** Reads the environment of one job type; undefined if no type has that name. */
export async function readEnvironment(
  { config, db }: WithImages,
  name: string,
): Promise<Environment | undefined> {
  return environment(config, await builtImages(db), name);
}
