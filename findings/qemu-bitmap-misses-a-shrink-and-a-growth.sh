#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# QEMU, dirty bitmaps: when an image shrinks, its bitmaps are cut, and when it grows, they get clean
# bits. So if an image shrinks and grows again, its end has turned from data to zeros, and no bit is
# set for it. The next incremental backup succeeds and leaves the old data at the end of the copy. All
# later backups do so too, until the guest writes there. The copy differs from the disk: a comparison
# of both fails, and after a restore an old signature (LVM, LUKS, a partition table) is back.
#
# This holds for a persistent bitmap and qemu-img resize, and for block_resize of an open image.
#
# Seen with QEMU 7.2.22 of Debian 12, amd64. The image has 8 MiB of data and a full copy. A bitmap is
# added, 64 KiB are written, and the image is resized to 4 MiB and to 8 MiB.
#
#   bitmap: 65536 bytes dirty
#   incremental backup: completed, no error
#   block_resize to 2 MiB and to 8 MiB, bitmap: 0 bytes dirty
#   byte at 6 MiB: image 0, copy 7
#
# Needs a Debian 12 mirror in apt's sources. After a shrink, a program that copies by a bitmap makes a
# full copy, or writes zeros to the new end of the image, which sets the bits.
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

qemu_img() { run root/usr/bin/qemu-img "$@"; }
qemu_io() { run root/usr/bin/qemu-io "$@" >log || { cat log >&2; exit 1; }; }
byte() { # IMAGE: the byte at 6 MiB
	qemu_img convert -O raw "$1" flat
	od -An -tu1 -j $((6 << 20)) -N1 flat | xargs
}

qemu_img create -q -f qcow2 image 8M
qemu_io -c 'write -P 7 0 8M' image
qemu_img convert -O qcow2 image copy
qemu_img bitmap --add image changes
qemu_io -c 'write -P 3 0 64k' image
qemu_img resize -q --shrink image 4M
qemu_img resize -q image 8M

coproc daemon { exec "$dir/root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" root/usr/bin/qemu-storage-daemon \
	--blockdev driver=qcow2,node-name=image,file.driver=file,file.filename=image \
	--blockdev driver=qcow2,node-name=copy,file.driver=file,file.filename=copy \
	--chardev stdio,id=c --monitor chardev=c; }
pid=$!
qmp() { echo "$1" >&"${daemon[1]}"; }
await() { # PATTERN: the next message that has it
	while read -r -t 60 message <&"${daemon[0]}"; do
		! grep -qE "$1" <<<"$message" || return 0
	done
	echo "no $1" >&2
	exit 1
}
bitmap() { # how many bytes are dirty
	qmp '{"execute": "query-named-block-nodes", "arguments": {"flat": true}}'
	await dirty-bitmaps
	result="bitmap: $(grep -oE '"count": [0-9]+' <<<"$message" | grep -oE '[0-9]+') bytes dirty"
}
qmp '{"execute": "qmp_capabilities"}'
{
	bitmap
	echo "$result"
	qmp '{"execute": "blockdev-backup", "arguments": {"job-id": "b", "device": "image", "target": "copy", "sync": "incremental", "bitmap": "changes"}}'
	await 'BLOCK_JOB_(COMPLETED|CANCELLED)'
	grep -q BLOCK_JOB_COMPLETED <<<"$message" && result=completed || result=cancelled
	grep -q '"error"' <<<"$message" && result+=', an error' || result+=', no error'
	echo "incremental backup: $result"
	await '"status": "null"'
	for mib in 2 8; do
		qmp '{"execute": "block_resize", "arguments": {"node-name": "image", "size": '$((mib << 20))'}}'
		await '"return"'
	done
	bitmap
	echo "block_resize to 2 MiB and to 8 MiB, $result"
	qmp '{"execute": "quit"}'
	wait "$pid" # until the daemon has closed the images
	echo "byte at 6 MiB: image $(byte image), copy $(byte copy)"
} >seen
cat >want <<'END'
bitmap: 65536 bytes dirty
incremental backup: completed, no error
block_resize to 2 MiB and to 8 MiB, bitmap: 0 bytes dirty
byte at 6 MiB: image 0, copy 7
END
diff -u want seen && echo 'as stated'
