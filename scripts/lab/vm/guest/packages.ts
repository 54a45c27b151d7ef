/** What the guest has beyond a minimal Debian 13; recommendations are not installed. */
export const GUEST_PACKAGES = [
  // A machine with systemd that ssh reaches.
  "linux-image-cloud-amd64 initramfs-tools zstd systemd-sysv dbus udev dbus-user-session",
  "libpam-systemd openssh-server iproute2 procps apparmor",
  // What the project asks of a machine.
  "ca-certificates git nodejs npm python3",
  // The engines. Debian keeps the `docker` command in a package of its own.
  "docker.io docker-cli iptables runsc",
  "podman runc crun uidmap passt slirp4netns netavark aardvark-dns",
].flatMap((line) => line.split(" "));
