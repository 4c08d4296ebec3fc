#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what machines need on Debian, and makes the root that they all begin with,
# Debian 12 with libvirt and QEMU, in $VOLFERRY_MACHINE_CACHE (default: .cache/machine at
# the top of the repository). Nothing is started or enabled on the host. Where everything
# is there already it does nothing and needs no network. It needs root.

set -eu
umask 022

top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${VOLFERRY_MACHINE_CACHE:-$top/.cache/machine}
mirror=${VOLFERRY_MACHINE_MIRROR:-} # empty: Debian's own
packages="mmdebstrap systemd-container iproute2 util-linux"
# What a hypervisor has. nftables cuts a network, rpm reads our rpm packages.
include="systemd,systemd-sysv,dbus,dbus-user-session,iproute2,nftables,procps,ca-certificates,rpm,libvirt-daemon-system,libvirt-clients,qemu-system-x86,qemu-utils,ovmf,systemd-boot-efi,mtools,fdisk,xfsprogs,btrfs-progs,e2fsprogs,util-linux,mount,strace,kmod"

say() { echo "machine: $*" >&2; }

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
stamp() { echo "$(sha256sum <"$top/test/machine/install.sh") $(stat -c %i "$cache/root")"; }

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # two test runs may start together
if [ -f "$cache/stamp" ] && [ -d "$cache/root" ] && [ "$(cat "$cache/stamp")" = "$(stamp)" ]; then
	say "ready"
	exit 0
fi

say "making a root of Debian 12"
rm -rf "$cache/stamp" "$cache/root" "$cache/root.new"
trap 'rm -rf "$cache/root.new"' EXIT INT TERM
mmdebstrap --quiet --variant=minbase --include="$include" bookworm "$cache/root.new" ${mirror:+"$mirror"}
chroot "$cache/root.new" dpkg --configure -a
# A container may not make cgroups for QEMU.
printf '\ncgroup_controllers = []\n' >>"$cache/root.new/etc/libvirt/qemu.conf"
# Journals outlive a boot, and who is asked for them has not to be in the machine.
mkdir -p "$cache/root.new/var/log/journal"
# Each machine makes its own at its first boot.
: >"$cache/root.new/etc/machine-id"
rm -rf "$cache/root.new/var/lib/apt/lists" "$cache/root.new/etc/hostname" "$cache/root.new/etc/resolv.conf"
mkdir "$cache/root.new/var/lib/apt/lists"
mv "$cache/root.new" "$cache/root"
stamp >"$cache/stamp"
say "ready"
