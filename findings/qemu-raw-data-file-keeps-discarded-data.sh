#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# qcow2 with data_file_raw=on: the manual promises that QEMU always keeps the data file consistent as a
# raw image, and that the data which the guest sees at an offset is at the same offset of this file.
# This holds for writes, and for writes of zeros. It does not hold for discards. If the qcow2 node has
# discard=unmap and the node of the data file has discard=ignore (the default of a node that is added
# on its own), a discard changes the qcow2 metadata alone: the guest reads zeros, and the raw file
# still has the old data there.
#
# So a backup or a copy that takes the raw file differs from the disk that the guest sees, although
# the format was chosen to make it equal. qemu-img compare of both views of one image fails.
#
# Seen with QEMU 7.2.22 of Debian 12, amd64, 8 MiB of data, the first 4 MiB discarded.
#
#   discard=ignore on the data file: qcow2 0, raw 1
#   Content mismatch at offset 0!
#   discard=unmap on the data file: qcow2 0, raw 0
#   Images are identical.
#
# Needs a Debian 12 mirror in apt's sources, and a temporary folder on a file system that can free
# blocks of a file. A program gives the node of the data file the same value of discard as the qcow2
# node, or it reads the image through qcow2 alone.
set -eu

version=1:7.2+dfsg-7+deb12u18+b3
dir=$(mktemp -d)
daemon=
trap 'kill "$daemon" 2>/dev/null || true; rm -rf "$dir"' EXIT
cd "$dir"

# Install the packages, with all that they need, in the folder alone.
mkdir -p lists/partial cache/archives/partial root
: >status
apt=(-q -o "Dir::State::lists=$dir/lists" -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update >log 2>&1 || { cat log >&2; exit 1; }
apt-get "${apt[@]}" -y --no-install-recommends --download-only install "qemu-utils=$version" "qemu-system-common=$version" >log 2>&1 || { cat log >&2; exit 1; }
for deb in cache/archives/*.deb; do dpkg-deb -x "$deb" root; done
libraries=$dir/root/lib/x86_64-linux-gnu:$dir/root/usr/lib/x86_64-linux-gnu
run() { # PROGRAM ARGUMENT...
	"$dir/root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" "$@"
}

discard() { # --blockdev NODE...: discards the first 4 MiB of the node "disk"
	"$dir/root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" root/usr/bin/qemu-storage-daemon "$@" \
		--pidfile started --nbd-server "addr.type=unix,addr.path=$dir/socket" --export type=nbd,id=e,name=disk,node-name=disk,writable=on &
	daemon=$!
	for _ in {1..300}; do
		[ -s started ] && break
		sleep 0.1
	done
	run root/usr/bin/qemu-io -f raw -c 'discard 0 4M' -c flush "nbd+unix:///disk?socket=$dir/socket" >log || { cat log >&2; exit 1; }
	kill "$daemon"
	wait "$daemon"
	daemon=
	rm -f started
}
qemu_img() { run root/usr/bin/qemu-img "$@"; }
byte() { od -An -tu1 -N1 "$1" | xargs; }
compare() { # DISCARD: the value for the node of the data file
	rm -f image data
	qemu_img create -q -f qcow2 -o data_file=data,data_file_raw=on image 8M
	run root/usr/bin/qemu-io -c 'write -P 1 0 8M' image >log || { cat log >&2; exit 1; }
	discard --blockdev "driver=file,node-name=data,discard=$1,filename=data" \
		--blockdev driver=qcow2,node-name=disk,discard=unmap,data-file=data,file.driver=file,file.filename=image
	qemu_img convert -f qcow2 -O raw image flat
	echo "discard=$1 on the data file: qcow2 $(byte flat), raw $(byte data)"
	qemu_img compare -f qcow2 -F raw image data || true
}
{
	compare ignore
	compare unmap
} >seen
cat >want <<'END'
discard=ignore on the data file: qcow2 0, raw 1
Content mismatch at offset 0!
discard=unmap on the data file: qcow2 0, raw 0
Images are identical.
END
diff -u want seen && echo 'as stated'
