#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# qemu-img convert: a raw copy that has succeeded is in the page cache alone. The cache mode of the
# destination is "unsafe" unless -t names another, so no flush is made, neither at the end nor in
# between: exit status 0 says nothing about the disk. After a power cut the copy may be empty, and a
# write error that the kernel meets later is reported to no program. If the source is removed then,
# the data is lost. With -t writeback there is one flush, at the end.
#
# It depends on the format: to qcow2 the same command does flush, with the same default.
#
# Seen with QEMU 7.2.22 of Debian 12, amd64: the flushes (fsync, fdatasync) of one conversion.
#
#   raw: 0
#   raw, -t writeback: 1
#   qcow2: more than 0
#
# Needs a Debian 12 mirror in apt's sources, and permission to trace. A program that copies with
# qemu-img passes -t, or flushes the copy itself, and checks the result of the flush.
set -eu

version=1:7.2+dfsg-7+deb12u18+b3 strace=6.1-0.1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# Install the packages, with all that they need, in the folder alone.
mkdir -p lists/partial cache/archives/partial root
: >status
apt=(-q -o "Dir::State::lists=$dir/lists" -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update >log 2>&1 || { cat log >&2; exit 1; }
apt-get "${apt[@]}" -y --no-install-recommends --download-only install "qemu-utils=$version" "strace=$strace" >log 2>&1 || { cat log >&2; exit 1; }
for deb in cache/archives/*.deb; do dpkg-deb -x "$deb" root; done
libraries=$dir/root/lib/x86_64-linux-gnu:$dir/root/usr/lib/x86_64-linux-gnu
run() { # PROGRAM ARGUMENT...
	"$dir/root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" "$@"
}

head -c 8M /dev/urandom >src
flushes() { # OPTION...
	rm -f dst
	run root/usr/bin/strace -f -e trace=fsync,fdatasync,sync_file_range,syncfs -o trace \
		root/lib64/ld-linux-x86-64.so.2 --library-path "$libraries" root/usr/bin/qemu-img convert -f raw "$@" src dst
	[ -s dst ]
	grep -cE '(fsync|fdatasync|sync_file_range|syncfs)\(' trace || true
}
{
	echo "raw: $(flushes -O raw)"
	echo "raw, -t writeback: $(flushes -O raw -t writeback)"
	count=$(flushes -O qcow2)
	[ "$count" -gt 0 ] && echo 'qcow2: more than 0' || echo "qcow2: $count"
} >seen
cat >want <<'END'
raw: 0
raw, -t writeback: 1
qcow2: more than 0
END
diff -u want seen && echo 'as stated'
