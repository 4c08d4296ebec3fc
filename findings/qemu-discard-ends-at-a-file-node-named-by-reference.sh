#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# QEMU, -blockdev and blockdev-add: the same graph passes discards on or drops them, by the form of its
# definition. If the options of the file are written inside the options of the format node
# (file.driver=file), the node of the file gets discard=unmap although no option says so. If the format
# node refers to a node that was added before (file=NAME), the node of the file has discard=ignore,
# unless it was added with discard=unmap. Then a qcow2 node with discard=unmap marks the clusters as
# free and reports success to the guest, but the file keeps all its blocks.
#
# So when a program changes from the first form to the second, a thin pool fills up: fstrim reports
# that it has trimmed the disk, the guest reads zeros, and the host gets no space back.
#
# Seen with QEMU 7.2.22 of Debian 12, amd64: a qcow2 node with discard=unmap, 4 MiB of data, which are
# discarded.
#
#   file.driver=file: reads as zeros, space is freed
#   file=NAME: reads as zeros, space is kept
#   file=NAME, discard=unmap on both nodes: reads as zeros, space is freed
#
# Needs a Debian 12 mirror in apt's sources, and a temporary folder on a file system that can free
# blocks of a file. A program that adds each node on its own sets discard on each node of a disk.
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
prepare() {
	run root/usr/bin/qemu-img create -q -f qcow2 disk 4M
	run root/usr/bin/qemu-io -c 'write -P 1 0 4M' disk >log || { cat log >&2; exit 1; }
}
result() {
	local reads
	run root/usr/bin/qemu-img convert -O raw disk flat
	cmp -s -n 4194304 flat /dev/zero && reads='reads as zeros' || reads='reads as data'
	[ $(($(stat -c '%b * %B' disk))) -lt 4194304 ] && echo "$reads, space is freed" || echo "$reads, space is kept"
}
{
	prepare
	discard --blockdev driver=qcow2,node-name=disk,discard=unmap,file.driver=file,file.filename=disk
	echo "file.driver=file: $(result)"
	prepare
	discard --blockdev driver=file,node-name=file,filename=disk \
		--blockdev driver=qcow2,node-name=disk,discard=unmap,file=file
	echo "file=NAME: $(result)"
	prepare
	discard --blockdev driver=file,node-name=file,discard=unmap,filename=disk \
		--blockdev driver=qcow2,node-name=disk,discard=unmap,file=file
	echo "file=NAME, discard=unmap on both nodes: $(result)"
} >seen
cat >want <<'END'
file.driver=file: reads as zeros, space is freed
file=NAME: reads as zeros, space is kept
file=NAME, discard=unmap on both nodes: reads as zeros, space is freed
END
diff -u want seen && echo 'as stated'
