#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes machines of user-mode Linux: the kernel with the C library that it needs, and an image of Debian
# with libvirt, QEMU, LVM, iSCSI, multipath and NFS, AppArmor and the policy of SELinux, in
# $VOLFERRY_USERMODE_CACHE (default: .cache/usermode at the top of the repository; usermode-NAME for a
# release that is not bookworm). $VOLFERRY_MACHINE_SUITE is the release: bookworm, which is the default,
# or trixie. Nothing is started or enabled on the host. Where everything is there already it does
# nothing and needs no network. It needs root.

set -eu
umask 022

name=usermode
top=$(cd "$(dirname "$0")/../../.." && pwd)
here=$top/test/vm/usermode
suite=${VOLFERRY_MACHINE_SUITE:-bookworm}
cache=.cache/usermode
[ "$suite" = bookworm ] || cache=$cache-$suite
cache=${VOLFERRY_USERMODE_CACHE:-$top/$cache}
# shellcheck source=test/debian.sh
. "$top/test/debian.sh"

# The releases before have a kernel that does not run on a processor with AMX, and is slower on any.
kernel_suite=forky

finish() {
	rm -rf "$cache/kernel"
	# A mirror may be a few weeks old.
	mmdebstrap --quiet --variant=extract --include=user-mode-linux --aptopt='Acquire::Check-Valid-Until "false"' \
		"$kernel_suite" "$cache/kernel" ${mirror:+"$mirror"}
	release=$(ls "$cache/kernel/usr/lib/uml/modules")
	mkdir -p "$1/usr/lib/modules"
	cp -a "$cache/kernel/usr/lib/uml/modules/$release" "$1/usr/lib/modules/"
	chroot "$1" depmod "$release"

	echo '/dev/ubda / ext4 defaults,noatime 0 1' >"$1/etc/fstab"
	echo usermode >"$1/etc/hostname"
	echo '127.0.0.1 localhost usermode' >"$1/etc/hosts"
	: >"$1/etc/machine-id"
	# All that the kernel's security modules deny is in its log.
	echo 'kernel.printk_ratelimit=0' >"$1/etc/sysctl.d/denials.conf"
	cp "$here/command.service" "$1/etc/systemd/system/"
	chroot "$1" systemctl --quiet enable command.service
	# What starts by itself and is no part of a test.
	chroot "$1" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
		fstrim.timer man-db.timer logrotate.timer multipathd.service multipathd.socket open-iscsi.service nfs-server.service rpcbind.service rpcbind.socket

	# Labels of SELinux, which a kernel without it ignores.
	cp "$here/shares.cil" "$1/var/tmp/"
	chroot "$1" semodule -N -s default -i /var/tmp/shares.cil
	# shellcheck disable=SC2016 # the inner shell's
	unshare --mount sh -euc 'mount -t proc proc "$1/proc"
		chroot "$1" setfiles -F -e /proc -e /sys /etc/selinux/default/contexts/files/file_contexts /' sh "$1"

	rm -f "$cache/image.new"
	truncate -s 12G "$cache/image.new"
	mke2fs -q -F -t ext4 -E lazy_itable_init=1,nodiscard -d "$1" "$cache/image.new"
	mv "$cache/image.new" "$cache/image"
}

install_missing mmdebstrap e2fsprogs util-linux
system="systemd,systemd-sysv,udev,dbus,iproute2,procps,kmod,ca-certificates,util-linux,mount,e2fsprogs"
confinement="apparmor,apparmor-utils,selinux-policy-default,policycoreutils,selinux-utils"
storage="lvm2,thin-provisioning-tools,open-iscsi,multipath-tools,sg3-utils,nfs-kernel-server,python3-os-brick"
lab="libvirt-daemon-system,libvirt-clients,qemu-system-x86,qemu-utils,ovmf,systemd-boot-efi,mtools,fdisk,xfsprogs,btrfs-progs,strace"
[ "$suite" = bookworm ] || lab=$lab,libvirt-daemon-driver-storage-logical,libvirt-daemon-lock,libvirt-daemon-plugin-lockd
make_root "$0" "$system,$confinement,$storage,$lab"
