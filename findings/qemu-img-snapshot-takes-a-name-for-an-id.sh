#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# qemu-img snapshot -a NAME applies the internal snapshot with the ID NAME. It looks for a snapshot
# with this name only if no snapshot has this ID. qemu-img snapshot -d NAME looks for the name alone.
# The manual calls the argument of both "the name of the snapshot". qemu-img convert -l NAME looks for
# the ID first as well.
#
# QEMU chooses the IDs itself, from 1 on. So if a program names snapshots by numbers, such as a counter,
# a name may be the ID of another snapshot. Then -a replaces the content of the disk by the wrong
# snapshot, and -d with the same argument deletes the right snapshot.
#
# Seen with QEMU 7.2.22 of Debian 12, amd64. The snapshot named 2 is made first and has ID 1. The
# snapshot named 1 is made second and has ID 2. The disk has the number of its snapshot in each byte.
#
#   snapshot -a 1: the disk of the snapshot named 2
#   convert -l 1: the disk of the snapshot named 2
#   convert -l snapshot.name=1: the disk of the snapshot named 1
#   snapshot -d 1: the snapshot named 2 remains
#
# Needs a Debian 12 mirror in apt's sources. A program gives its snapshots names with a letter, or it
# refuses a name that is the ID of another snapshot.
set -eu

version=1:7.2+dfsg-7+deb12u18+b3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# Install the packages, with all that they need, in the folder alone.
mkdir -p lists/partial cache/archives/partial root
: >status
apt=(-q -o "Dir::State::lists=$dir/lists" -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update >log 2>&1 || { cat log >&2; exit 1; }
apt-get "${apt[@]}" -y --no-install-recommends --download-only install "qemu-utils=$version" >log 2>&1 || { cat log >&2; exit 1; }
for deb in cache/archives/*.deb; do dpkg-deb -x "$deb" root; done
libraries=$dir/root/lib/x86_64-linux-gnu:$dir/root/usr/lib/x86_64-linux-gnu
run() { # PROGRAM ARGUMENT...
	"$dir/root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" "$@"
}

qemu_img() { run root/usr/bin/qemu-img "$@"; }
fill() { # NUMBER: write it over the disk
	run root/usr/bin/qemu-io -c "write -P $1 0 1M" disk >log || { cat log >&2; exit 1; }
}
named() { # RAW: the snapshot with this content
	echo "the disk of the snapshot named $(od -An -tu1 -N1 "$1" | xargs)"
}

qemu_img create -q -f qcow2 disk 1M
for name in 2 1; do
	fill "$name"
	qemu_img snapshot -c "$name" disk
done
fill 3
{
	qemu_img snapshot -a 1 disk
	qemu_img convert -O raw disk flat
	echo "snapshot -a 1: $(named flat)"
	qemu_img convert -l 1 -O raw disk flat
	echo "convert -l 1: $(named flat)"
	qemu_img convert -l snapshot.name=1 -O raw disk flat
	echo "convert -l snapshot.name=1: $(named flat)"
	qemu_img snapshot -d 1 disk
	echo "snapshot -d 1: the snapshot named $(qemu_img snapshot -l disk | awk 'NR > 2 { print $2 }') remains"
} >seen
cat >want <<'END'
snapshot -a 1: the disk of the snapshot named 2
convert -l 1: the disk of the snapshot named 2
convert -l snapshot.name=1: the disk of the snapshot named 1
snapshot -d 1: the snapshot named 2 remains
END
diff -u want seen && echo 'as stated'
