#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# QEMU, query-blockstats: wr_highest_offset serves to make a block device larger before the qcow2
# image on it needs more space. The manual calls it "the offset after the greatest byte written to the
# device". It counts from the opening of the node on. When QEMU opens an image that is full of data,
# the number is 0; after a write into an existing cluster, it is the end of this write. Only a write
# that allocates a cluster at the end of the image sets it to the end of the image.
#
# So a program that compares this number with the size of the device sees much free space after each
# start of the guest, and again after a migration, where another QEMU opens the image. The program does
# not extend the device in time, and QEMU pauses the guest on ENOSPC. A copy up to this number lacks
# data.
#
# Seen with QEMU 7.2.22 of Debian 12, amd64, an image of 16 MiB, the first 12 MiB with data.
#
#   the image file has 12910592 bytes
#   opened: 0
#   64 KiB written again at 1 MiB: 1441792
#   64 KiB written at 14 MiB, for the first time: 12976128
#
# Needs a Debian 12 mirror in apt's sources. A program reads the end of the image by qemu-img check
# (image-end-offset) before the guest starts, and uses the greater of the two numbers.
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
apt-get "${apt[@]}" -y --no-install-recommends --download-only install "qemu-utils=$version" "qemu-system-common=$version" >log 2>&1 || { cat log >&2; exit 1; }
for deb in cache/archives/*.deb; do dpkg-deb -x "$deb" root; done
libraries=$dir/root/lib/x86_64-linux-gnu:$dir/root/usr/lib/x86_64-linux-gnu
run() { # PROGRAM ARGUMENT...
	"$dir/root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" "$@"
}

run root/usr/bin/qemu-img create -q -f qcow2 image 16M
run root/usr/bin/qemu-io -c 'write -P 1 0 12M' image >log || { cat log >&2; exit 1; }
end=$(stat -c %s image)

coproc daemon { exec "$dir/root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" root/usr/bin/qemu-storage-daemon \
	--blockdev driver=file,node-name=file,filename=image --blockdev driver=qcow2,node-name=image,file=file \
	--nbd-server "addr.type=unix,addr.path=$dir/socket" --export type=nbd,id=e,name=image,node-name=image,writable=on \
	--chardev stdio,id=c --monitor chardev=c; }
qmp() { echo "$1" >&"${daemon[1]}"; }
await() { # PATTERN: the next message that has it
	while read -r -t 60 message <&"${daemon[0]}"; do
		! grep -qE "$1" <<<"$message" || return 0
	done
	echo "no $1" >&2
	exit 1
}
highest() { # the number of the node of the file
	qmp '{"execute": "query-blockstats", "arguments": {"query-nodes": true}}'
	await wr_highest_offset
	result=$(grep -oE '"wr_highest_offset": [0-9]+[^{}]*\}, "node-name": "file"' <<<"$message" | grep -oE '[0-9]+' | head -1)
}
write() { # OFFSET
	run root/usr/bin/qemu-io -f raw -c "write -P 2 $1 64k" -c flush "nbd+unix:///image?socket=$dir/socket" >log || { cat log >&2; exit 1; }
}
qmp '{"execute": "qmp_capabilities"}'
await '"return"'
{
	echo "the image file has $end bytes"
	highest
	echo "opened: $result"
	write 1M
	highest
	echo "64 KiB written again at 1 MiB: $result"
	write 14M
	highest
	echo "64 KiB written at 14 MiB, for the first time: $result"
} >seen
qmp '{"execute": "quit"}'
cat >want <<'END'
the image file has 12910592 bytes
opened: 0
64 KiB written again at 1 MiB: 1441792
64 KiB written at 14 MiB, for the first time: 12976128
END
diff -u want seen && echo 'as stated'
