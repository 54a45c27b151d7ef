import type { EngineError } from "./types.ts";

interface Filtered {
  readonly HostConfig: { readonly SecurityOpt: readonly string[] };
}

/**
 * Podman takes the seccomp profile of a create call for the name of a file, and refuses it.
 * Source: github.com/containers/podman issue 27710.
 */
export function refusesProfile({ message }: EngineError): boolean {
  return /seccomp profile.*(file name too long|no such file)/is.test(message);
}

/** The container under the engine's own filter instead of ours. */
export function underEngineFilter<T extends Filtered>(profile: T): T {
  const SecurityOpt = profile.HostConfig.SecurityOpt.filter(
    (option) => !option.startsWith("seccomp={"),
  );
  return { ...profile, HostConfig: { ...profile.HostConfig, SecurityOpt } };
}
