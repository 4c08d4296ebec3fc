#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# QEMU, the NBD client with reconnect-delay (libvirt: <reconnect delay='...'/>): requests wait for a
# server that has gone, and go on at its successor. A flush waits too, and succeeds there. But the
# successor stores only what it was given itself: writes that the first server had acknowledged, and
# had not stored yet, are lost, and no write and no flush has reported an error. The guest relies on
# that flush.
#
# Without reconnect-delay the flush fails, and so does every later request.
#
# Seen with QEMU 7.2.22 and nbdkit 1.32.5 (filter cache, cache=writeback) of Debian 12, amd64: the
# client writes, the server is killed and started again, the client flushes.
#
#   reconnect-delay=0: the flush fails
#   reconnect-delay=10: the flush succeeds, the write is lost
#
# Needs a Debian 12 mirror in apt's sources. A program that proves data by a flush opens its connection
# without reconnect-delay, or reads the data back after the flush.
set -eu

version=1:7.2+dfsg-7+deb12u18+b3
dir=$(mktemp -d)
server=
trap 'kill -9 "$server" 2>/dev/null || true; rm -rf "$dir"' EXIT
cd "$dir"

# Install the packages, with all that they need, in the folder alone.
mkdir -p lists/partial cache/archives/partial root
: >status
apt=(-q -o "Dir::State::lists=$dir/lists" -o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update >log 2>&1 || { cat log >&2; exit 1; }
apt-get "${apt[@]}" -y --no-install-recommends --download-only install "qemu-utils=$version" nbdkit=1.32.5-1 >log 2>&1 || { cat log >&2; exit 1; }
for deb in cache/archives/*.deb; do dpkg-deb -x "$deb" root; done
libraries=$dir/root/lib/x86_64-linux-gnu:$dir/root/usr/lib/x86_64-linux-gnu
loader=$dir/root/lib64/ld-linux-x86-64.so.2
modules=$dir/root/usr/lib/x86_64-linux-gnu/nbdkit

await() { # FILE
	for _ in {1..300}; do
		[ -e "$1" ] && return
		sleep 0.1
	done
	echo "$1 does not appear" >&2
	exit 1
}
serve() {
	rm -f pid socket
	"$loader" --library-path "$libraries" root/usr/bin/nbdkit -f -P pid -U socket \
		--filter="$modules/filters/nbdkit-cache-filter.so" "$modules/plugins/nbdkit-file-plugin.so" disk cache=writeback 3>&- &
	server=$!
	await pid
}
try() { # SECONDS
	local flush=fails write=lost
	rm -f disk commands log
	truncate -s 1M disk
	mkfifo commands
	serve
	"$loader" --library-path "$libraries" root/usr/bin/qemu-io -t writeback \
		--image-opts "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path=socket,file.reconnect-delay=$1" <commands >log &
	local client=$!
	exec 3>commands
	echo 'write -P 7 0 64k' >&3
	for _ in {1..300}; do
		grep -q wrote log && break
		sleep 0.1
	done
	kill -9 "$server"
	wait "$server" 2>/dev/null || true
	serve
	# qemu-io reports the result of a flush by its exit status alone.
	echo 'flush' >&3
	echo 'quit' >&3
	exec 3>&-
	wait "$client" && flush=succeeds
	kill "$server"
	wait "$server" 2>/dev/null || true
	[ "$(head -c 1 disk | od -An -tu1 | tr -d ' ')" = 7 ] && write=there
	[ "$flush" = fails ] && echo "reconnect-delay=$1: the flush fails" || echo "reconnect-delay=$1: the flush succeeds, the write is $write"
}
{
	try 0
	try 10
} >seen
cat >want <<'END'
reconnect-delay=0: the flush fails
reconnect-delay=10: the flush succeeds, the write is lost
END
diff -u want seen && echo 'as stated'
