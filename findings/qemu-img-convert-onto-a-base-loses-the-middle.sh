#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# qemu-img convert -B FILE makes an overlay on FILE. It copies only the clusters that the top layer of
# the source has, and does not compare the layers below with FILE. So if top has the backing file
# middle, and middle has the backing file base, "convert -B base top copy" succeeds, and the copy
# lacks the data of middle. A guest on the copy reads the blocks of base there, or zeros.
#
# The manual asks that FILE has the same content as the "base image" of the source. This means the
# direct backing file. For commit -b, rebase -b and block-commit, a base is any lower image of the
# chain, so convert -B looks like the way to shorten a chain while it is copied.
#
# Seen with QEMU 7.2.22 of Debian 12, amd64. base has 1 in the first MiB, middle 2 in the second, and
# top 3 in the third.
#
#   top: 1 2 3
#   convert -B base: exit status 0, 1 0 3
#   convert -B middle, then rebase to base: 1 2 3
#
# Needs a Debian 12 mirror in apt's sources. A program that shortens a chain while it copies passes the
# direct backing file to -B, and then calls rebase, without -u, on the copy. qemu-img compare finds a
# copy that lacks a layer.
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
qemu_io() { run root/usr/bin/qemu-io "$@" >log || { cat log >&2; exit 1; }; }
blocks() { # IMAGE: the first byte of each MiB
	qemu_img convert -O raw "$1" flat
	for mib in 0 1 2; do od -An -tu1 -j $((mib << 20)) -N1 flat; done | xargs
}

qemu_img create -q -f qcow2 base 3M
qemu_img create -q -f qcow2 -b base -F qcow2 middle
qemu_img create -q -f qcow2 -b middle -F qcow2 top
qemu_io -c 'write -P 1 0 1M' base
qemu_io -c 'write -P 2 1M 1M' middle
qemu_io -c 'write -P 3 2M 1M' top
{
	echo "top: $(blocks top)"
	status=0
	qemu_img convert -O qcow2 -B base -F qcow2 top copy || status=$?
	echo "convert -B base: exit status $status, $(blocks copy)"
	qemu_img convert -O qcow2 -B middle -F qcow2 top copy
	qemu_img rebase -b base -F qcow2 copy
	echo "convert -B middle, then rebase to base: $(blocks copy)"
} >seen
cat >want <<'END'
top: 1 2 3
convert -B base: exit status 0, 1 0 3
convert -B middle, then rebase to base: 1 2 3
END
diff -u want seen && echo 'as stated'
