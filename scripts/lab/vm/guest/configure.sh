#!/bin/sh
# Configures the guest in ROOT: network, ssh with the public key KEY, the project's disk, and one ordinary user.
# Usage: sh configure.sh ROOT KEY
set -eu
root=$1 key=$2

echo airlock-vm >"$root/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost\n127.0.1.1 airlock-vm\n' >"$root/etc/hosts"
echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
printf '[Match]\nName=en*\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=no\n' \
  >"$root/etc/systemd/network/guest.network"
chroot "$root" systemctl enable -q systemd-networkd ssh
chroot "$root" systemctl mask -q systemd-networkd-wait-online
# What costs time at boot or comes in between later.
chroot "$root" systemctl mask -q apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer \
  dpkg-db-backup.timer fstrim.timer systemd-binfmt.service systemd-pstore.service
# The checks start the engine that each of them wants.
chroot "$root" systemctl disable -q docker.service docker.socket podman.service podman.socket || true

mkdir -p "$root/root/.ssh"
cp "$key" "$root/root/.ssh/authorized_keys"
chmod 700 "$root/root/.ssh"
printf 'UseDNS no\nMaxSessions 50\n' >"$root/etc/ssh/sshd_config.d/airlock.conf"

# The second disk holds /opt/airlock: a clone of the project with its node_modules.
echo '/dev/vdb /opt ext4 defaults,nofail 0 0' >>"$root/etc/fstab"

# An ordinary user whose systemd runs without a login, as a rootless engine wants it.
chroot "$root" useradd --create-home --shell /bin/bash ada
mkdir -p "$root/var/lib/systemd/linger"
touch "$root/var/lib/systemd/linger/ada"
