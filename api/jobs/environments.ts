import type { Deps } from "../deps.ts";
import type { AnyDb } from "../store/tenant.ts";
import { environment, environments, type Environment } from "../domain/environment.ts";
import { isFor } from "../domain/job-types.ts";
import { builtImages } from "../store/builds/builds.ts";

type WithImages = Pick<Deps, "config"> & { db: AnyDb };

/** Reads the present environments of all job types; with a tenant's database, of those that it may use. */
export async function readEnvironments({ config, db }: WithImages): Promise<Environment[]> {
  const found = environments(config, await builtImages(db));
  return found.filter(({ jobType }) => isFor(tenantOf(db), jobType));
}

/** Reads the environment of one job type; undefined if no type has that name, or the tenant may not use it. */
export async function readEnvironment(
  { config, db }: WithImages,
  name: string,
): Promise<Environment | undefined> {
  const found = environment(config, await builtImages(db), name);
  return found && isFor(tenantOf(db), found.jobType) ? found : undefined;
}

const tenantOf = (db: AnyDb): string => ("tenant" in db ? db.tenant : "*");
