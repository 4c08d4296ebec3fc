#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# QEMU rounds the size of a raw image up to a multiple of 512 bytes. qemu-img info shows the rounded
# size. qemu-img convert from raw to raw writes zeros up to it, so the copy has another length and
# another checksum than its source, and qemu-img compare calls both identical. An NBD export of the
# image has the rounded size as well.
#
# So a copy by QEMU and a copy by another tool of the same image differ, although each is right in its
# own way, and a checksum of the file is no proof of such a copy.
#
# Seen with QEMU 7.2.22 of Debian 12, amd64, an image of 1000 bytes.
#
#   virtual size: 1 KiB (1024 bytes)
#   the copy has 1024 bytes, its first 1000 as the source
#   Images are identical.
#   the checksums differ
#
# Needs a Debian 12 mirror in apt's sources. A program that checks a copy compares the length in whole
# sectors, or compares what QEMU reads of both.
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
head -c 1000 /dev/urandom >src
qemu_img convert -f raw -O raw src dst
{
	qemu_img info -f raw src | grep '^virtual size'
	cmp -s <(head -c 1000 dst) src && echo "the copy has $(stat -c %s dst) bytes, its first 1000 as the source"
	qemu_img compare -f raw -F raw src dst
	[ "$(sha256sum <src)" = "$(sha256sum <dst)" ] && echo 'the checksums are equal' || echo 'the checksums differ'
} >seen
cat >want <<'END'
virtual size: 1 KiB (1024 bytes)
the copy has 1024 bytes, its first 1000 as the source
Images are identical.
the checksums differ
END
diff -u want seen && echo 'as stated'
