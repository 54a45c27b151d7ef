#!/bin/sh
# Builds the root file system of the Debian 13 guest and puts three files into FOLDER:
# root.img (ext4, sparse), vmlinuz and initrd. Run as root, in mount and pid namespaces of its own.
# Usage: sh build.sh FOLDER MIRROR PACKAGE...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 mirror=$2
shift 2
root=$folder/root

debootstrap --variant=minbase trixie "$root" "$mirror"

# Packages must not start their services here: the host would run them.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
echo '/dev/vda / ext4 defaults 0 0' >"$root/etc/fstab"
# The initial RAM file system has the drivers of this machine only: it boots twice as fast.
mkdir -p "$root/etc/initramfs-tools/conf.d"
echo MODULES=list >"$root/etc/initramfs-tools/conf.d/airlock"
printf 'virtio_pci\nvirtio_blk\next4\n' >"$root/etc/initramfs-tools/modules"
mount -t proc proc "$root/proc"

in_guest() {
  chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"
}

# The image is made anew where it is cut short: nothing of it has to be synced.
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
in_guest apt-get update
# What Debian does not carry is left out; the checks say so.
for package in "$@"; do
  in_guest apt-cache show "$package" >/dev/null 2>&1 || continue
  packages="${packages:-} $package"
done
# shellcheck disable=SC2086
in_guest apt-get install -y -o DPkg::Options::=--force-confold --no-install-recommends $packages
in_guest apt-get clean

# The host's own certificate authorities, npm settings and proxies: the guest goes out the same way.
for certificate in /usr/local/share/ca-certificates/*.crt; do
  [ -e "$certificate" ] && cp "$certificate" "$root/usr/local/share/ca-certificates/"
done
in_guest update-ca-certificates
for npmrc in /root/.npmrc /usr/etc/npmrc; do
  [ -e "$npmrc" ] && cat "$npmrc" >>"$root/etc/npmrc"
done
env | grep -iE '^(https?|no)_proxy=' >>"$root/etc/environment" || true
echo NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt >>"$root/etc/environment"

sh "$here/configure.sh" "$root" "$folder/key.pub"

rm "$root/usr/sbin/policy-rc.d"
umount "$root/proc"
cp "$root"/boot/vmlinuz-* "$folder/vmlinuz"
cp "$root"/boot/initrd.img-* "$folder/initrd"
truncate -s 24G "$folder/root.img"
mke2fs -q -t ext4 -L airlock-vm -d "$root" "$folder/root.img"
rm -rf "$root"
