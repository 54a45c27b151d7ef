#!/bin/sh
# Unpacks Debian 13's QEMU, with all that it needs, into FOLDER; nothing of it is configured or run. Run as root.
# Usage: sh unpack-qemu.sh FOLDER MIRROR
set -eu
folder=$1 mirror=$2
debootstrap --foreign --variant=minbase --include=qemu-system-x86 trixie "$folder" "$mirror"
for package in "$folder"/var/cache/apt/archives/*.deb; do
  dpkg-deb --extract "$package" "$folder"
done
rm -r "$folder/var/cache/apt/archives" "$folder/debootstrap"
