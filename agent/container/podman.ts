interface Mounted {
  readonly HostConfig: object;
}

interface Settings {
  readonly ReadonlyRootfs?: boolean;
  readonly Tmpfs?: Readonly<Record<string, string>>;
}

/**
 * The container without what Podman adds to a read-only one: a /var/tmp that everyone may write to,
 * without a size.
 */
export function forPodman<T extends Mounted>(profile: T): T {
  const HostConfig: Settings = profile.HostConfig;
  if (!HostConfig.ReadonlyRootfs) return profile;
  const Tmpfs = { ...HostConfig.Tmpfs, "/var/tmp": "ro,nosuid,nodev,noexec" };
  return { ...profile, HostConfig: { ...HostConfig, Tmpfs } };
}
