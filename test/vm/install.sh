#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what virtual machines of tests need on Debian, and makes their root, Debian 12 with
# its own kernel, libvirt, QEMU, LVM, iSCSI, multipath and NVMe, in $VOLFERRY_VM_CACHE (default: .cache/vm at
# the top of the repository). Nothing is started or enabled on the host. Where everything
# is there already it does nothing and needs no network. It needs root.

set -eu
umask 022

top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${VOLFERRY_VM_CACHE:-$top/.cache/vm}
mirror=${VOLFERRY_MACHINE_MIRROR:-} # empty: Debian's own
packages="mmdebstrap qemu-system-x86"
storage="udev,kmod,lvm2,thin-provisioning-tools,open-iscsi,multipath-tools,nvme-cli"
lab="libvirt-daemon-system,libvirt-clients,qemu-system-x86,qemu-utils,ovmf,systemd-boot-efi,mtools,fdisk,xfsprogs,btrfs-progs,e2fsprogs,strace"
include="linux-image-amd64,iproute2,procps,util-linux,mount,$storage,$lab"

say() { echo "vm: $*" >&2; }

missing_packages() {
	for package in $packages; do
		status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
		[ "$status" = "install ok installed" ] || echo "$package"
	done
}

missing=$(missing_packages)
if [ -n "$missing" ]; then
	# shellcheck disable=SC2086 # one word each
	say "installing" $missing
	apt-get update -q
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

# stamp is another one when this file or the directory is: a copy of a root has lost
# who owns what.
stamp() { echo "$(sha256sum <"$top/test/vm/install.sh") $(stat -c %i "$cache/root")"; }

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # two test runs may start together
if [ -f "$cache/stamp" ] && [ -d "$cache/root" ] && [ "$(cat "$cache/stamp")" = "$(stamp)" ]; then
	say "ready"
	exit 0
fi

say "making a root of Debian 12 with a kernel"
rm -rf "$cache/stamp" "$cache/root" "$cache/root.new"
trap 'rm -rf "$cache/root.new"' EXIT INT TERM
mmdebstrap --quiet --variant=minbase --include="$include" bookworm "$cache/root.new" ${mirror:+"$mirror"}
rm -rf "$cache/root.new/var/lib/apt/lists" "$cache/root.new/etc/resolv.conf"
mv "$cache/root.new" "$cache/root"
stamp >"$cache/stamp"
say "ready"
