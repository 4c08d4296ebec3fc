#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# QEMU, block-job-cancel on a mirror: the same command means two things. As long as the job copies, it
# ends the job as cancelled. Once the job is ready, it ends the job with success: QEMU makes the target a
# consistent copy, sends BLOCK_JOB_COMPLETED without an error, and only leaves the disk where it was.
# So this event does not prove that the guest is on the target. If one program asks for the pivot and
# another program cancels, the first takes the event for the end of its pivot, and the wrong image for
# the good one. force=true cancels the job in both phases. An active commit behaves the same.
#
# Seen with qemu-storage-daemon 7.2.22 of Debian 12, amd64, a mirror of 4 MiB that is ready.
#
#   block-job-cancel: BLOCK_JOB_COMPLETED, no error
#   block-job-cancel, force: BLOCK_JOB_CANCELLED, no error
#
# Needs a Debian 12 mirror in apt's sources. A program that has asked for a pivot checks the image
# of the disk afterwards.
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
apt-get "${apt[@]}" -y --no-install-recommends --download-only install "qemu-system-common=$version" >log 2>&1 || { cat log >&2; exit 1; }
for deb in cache/archives/*.deb; do dpkg-deb -x "$deb" root; done
libraries=$dir/root/lib/x86_64-linux-gnu:$dir/root/usr/lib/x86_64-linux-gnu
truncate -s 4M src dst
coproc daemon { exec "$dir/root/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" root/usr/bin/qemu-storage-daemon \
	--blockdev driver=file,node-name=src,filename=src --blockdev driver=file,node-name=dst,filename=dst \
	--chardev stdio,id=c --monitor chardev=c; }
qmp() { echo "$1" >&"${daemon[1]}"; }
await() { # PATTERN: the next message that has it
	while read -r -t 60 message <&"${daemon[0]}"; do
		! grep -qE "$1" <<<"$message" || return 0
	done
	echo "no $1" >&2
	exit 1
}
ends() { # OPTIONS: how a ready mirror ends
	qmp '{"execute": "blockdev-mirror", "arguments": {"job-id": "m", "device": "src", "target": "dst", "sync": "full"}}'
	await BLOCK_JOB_READY
	qmp '{"execute": "block-job-cancel", "arguments": {"device": "m"'"$1"'}}'
	await 'BLOCK_JOB_(COMPLETED|CANCELLED)'
	result=$(grep -oE 'BLOCK_JOB_(COMPLETED|CANCELLED)' <<<"$message")
	grep -q '"error"' <<<"$message" && result+=', an error' || result+=', no error'
	await '"status": "null"'
}
qmp '{"execute": "qmp_capabilities"}'
{
	ends ''
	echo "block-job-cancel: $result"
	ends ', "force": true'
	echo "block-job-cancel, force: $result"
} >seen
qmp '{"execute": "quit"}'
cat >want <<'END'
block-job-cancel: BLOCK_JOB_COMPLETED, no error
block-job-cancel, force: BLOCK_JOB_CANCELLED, no error
END
diff -u want seen && echo 'as stated'
