#!/bin/sh
# Runs a command as PID 1 of new namespaces that look like a sandbox from inside: a root of its own,
# tmpfs on /code, /input, /output and /tmp, and the given Python installation first on PATH.
# Usage: namespace.sh <folder of the Python installation> <command> [argument ...]
set -eu
if [ "${1-}" != inside ]; then
  exec unshare --mount --pid --ipc --net --fork --kill-child sh "$0" inside "$@"
fi
python=$2
shift 2

mount -t tmpfs -o mode=755 tmpfs /mnt
cd /mnt
mkdir -p code input output tmp proc dev etc ".$python"
for folder in bin lib lib64 sbin usr; do
  if [ -L "/$folder" ]; then cp -P "/$folder" .
  elif [ -d "/$folder" ]; then mkdir -p "$folder" && mount --rbind "/$folder" "$folder"; fi
done
mount --rbind /dev dev
mount -t proc proc proc
[ "$python" = /usr ] || mount --bind "$python" ".$python"
for folder in code input; do mount -t tmpfs -o nosuid,nodev,mode=755,size=32m tmpfs "$folder"; done
for folder in output tmp; do mount -t tmpfs -o nosuid,nodev,mode=1777,size=256m tmpfs $folder; done

exec env -i PATH="$python/bin:/usr/bin:/bin" /usr/sbin/chroot . "$@"
