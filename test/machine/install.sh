#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what machines need on Debian, and makes the root that they all begin with, Debian
# with libvirt, QEMU and what package lab needs in it, in $VOLFERRY_MACHINE_CACHE (default:
# .cache/machine at the top of the repository; machine-NAME for a release that is not bookworm).
# $VOLFERRY_MACHINE_SUITE is the release: bookworm, which is the default, trixie, or
# bookworm-backports. Nothing is started or enabled on the host. Where everything is there
# already it does nothing and needs no network. It needs root.

set -eu
umask 022

name=machine
top=$(cd "$(dirname "$0")/../.." && pwd)
suite=${VOLFERRY_MACHINE_SUITE:-bookworm}
cache=.cache/machine
[ "$suite" = bookworm ] || cache=$cache-$suite
cache=${VOLFERRY_MACHINE_CACHE:-$top/$cache}
# shellcheck source=test/debian.sh
. "$top/test/debian.sh"

finish() {
	chroot "$1" dpkg --configure -a
	# A container may not make cgroups for QEMU.
	printf '\ncgroup_controllers = []\n' >>"$1/etc/libvirt/qemu.conf"
	# Journals outlive a boot, and who is asked for them has not to be in the machine.
	mkdir -p "$1/var/log/journal"
	# Each machine makes its own at its first boot.
	: >"$1/etc/machine-id"
	rm -f "$1/etc/hostname"
}

install_missing mmdebstrap systemd-container iproute2 util-linux
# What a hypervisor has. nftables cuts a network, rpm reads our rpm packages.
include="systemd,systemd-sysv,dbus,dbus-user-session,iproute2,nftables,procps,ca-certificates,rpm,libvirt-daemon-system,libvirt-clients,qemu-system-x86,qemu-utils,ovmf"
lab="systemd-boot-efi,mtools,fdisk,xfsprogs,btrfs-progs,e2fsprogs,util-linux,mount,strace,kmod"
# Later releases have virtlockd and libvirtd's plugin for it in packages of their own.
[ "$suite" = bookworm ] || lab=$lab,libvirt-daemon-lock,libvirt-daemon-plugin-lockd
make_root "$0" "$include,$lab"
