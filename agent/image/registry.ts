import type { RegistryAuth } from "../container/image-calls.ts";

export type Registry = {
  /** Such as "registry.example:5000/team"; undefined where this agent knows none. */
  readonly name: string | undefined;
  readonly auth: RegistryAuth | undefined;
};

/** The credentials for an image, if it is in the agent's own registry: the API names no other for them. */
export function authFor({ name, auth }: Registry, reference: string): RegistryAuth | undefined {
  return name !== undefined && reference.startsWith(`${name}/`) ? auth : undefined;
}
