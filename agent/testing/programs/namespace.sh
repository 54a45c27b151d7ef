#!/bin/sh
# Runs a command as PID 1 of new namespaces that look like a sandbox from inside: its own root,
# tmpfs on /code, /input, /output, /tmp and /dev/shm, a loopback, and the given Python installation first on PATH.
# An installation in a folder called usr belongs to a whole Debian, whose /usr replaces this machine's.
# Usage: namespace.sh <folder of the Python installation> <command> [argument ...]
set -eu
if [ "${1-}" != inside ]; then
  exec unshare --mount --pid --ipc --net --fork --kill-child sh "$0" inside "$@"
fi
python=$2
shift 2
case $python in
  */usr) usr=$python inside=/usr ;;
  *) usr=/usr inside=$python ;;
esac

ip link set lo up
mount -t tmpfs -o mode=755 tmpfs /mnt
cd /mnt
root=${usr%/usr}
mkdir -p code input output packages tmp proc dev etc/ssl usr
cp -P "$root/bin" "$root/lib" "$root/lib64" "$root/sbin" .
{
  echo "$usr /mnt/usr none rbind"
  # Newer versions of pip do not start without certificates.
  [ ! -d "$root/etc/ssl" ] || echo "$root/etc/ssl /mnt/etc/ssl none bind"
  echo "/dev /mnt/dev none rbind"
  echo "tmpfs /mnt/dev/shm tmpfs nosuid,nodev,mode=1777"
  echo "proc /mnt/proc proc defaults"
  for folder in code input; do echo "tmpfs /mnt/$folder tmpfs nosuid,nodev,mode=755,size=32m"; done
  for folder in output tmp; do echo "tmpfs /mnt/$folder tmpfs nosuid,nodev,mode=1777,size=256m"; done
  # Its folder is made here, as what is mounted above covers what was there: an installation may be in /tmp.
  [ "$inside" = /usr ] || echo "$inside /mnt$inside none bind,X-mount.mkdir"
} >fstab
mount --all --fstab fstab
rm fstab

exec env -i PATH="$inside/bin:/usr/bin:/bin" /usr/sbin/chroot . "$@"
