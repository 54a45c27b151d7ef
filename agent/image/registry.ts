import type { RegistryAuth } from "../engine/image-calls.ts";

export type Registry = {
  /** Such as "registry.example:5000/team"; undefined if none is configured. */
  readonly name: string | undefined;
  readonly auth: RegistryAuth | undefined;
};

/**
 * The credentials for an image, only if it is in the agent's configured registry: the API must not
 * send them to another one.
 */
export function authFor({ name, auth }: Registry, reference: string): RegistryAuth | undefined {
  return name !== undefined && reference.startsWith(`${name}/`) ? auth : undefined;
}
