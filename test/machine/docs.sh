#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes what a reader of docs/ has and a machine lacks, in $VOLFERRY_MACHINE_CACHE (default:
# .cache/machine at the top of the repository):
#
#   image/  debian-12-nocloud-amd64.qcow2, like the image of Debian's cloud team that the
#           tutorial downloads: Debian 12 with systemd on a disk of 2 GiB, which BIOS boots;
#           root logs in at the serial console without a password
#   tools/  Debian packages of programs that pages call
#
# install.sh has made the root before. Where all is there already it does nothing and needs
# no network. It needs root.

set -eu
umask 022

name=docs
top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${VOLFERRY_MACHINE_CACHE:-$top/.cache/machine}
suite=bookworm
# shellcheck source=test/debian.sh
. "$top/test/debian.sh"
image=$cache/image/debian-12-nocloud-amd64.qcow2
tools="curl psmisc"

# stamp is another one when this file or the root is: the packages fit one root.
stamp() { echo "$(sha256sum <"$top/test/machine/docs.sh") $(cat "$cache/stamp")"; }

mkdir -p "$cache/image"
lock "$cache/docs.lock"
if [ -f "$image" ] && [ "$(cat "$cache/docs.stamp" 2>/dev/null)" = "$(stamp)" ]; then
	say "ready"
	exit 0
fi

install_missing mmdebstrap syslinux syslinux-common mtools fdisk e2fsprogs qemu-utils

say "making an image of Debian 12"
rm -rf "$cache/docs.stamp" "$image" "$cache/tools"
work=$(mktemp -d "$cache/docs.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
debian systemd-sysv,udev,dbus,initramfs-tools,linux-image-cloud-amd64 "$work/system"
chroot "$work/system" passwd --delete --quiet root
echo '/dev/vda2 / ext4 defaults 0 1' >"$work/system/etc/fstab"
echo tour >"$work/system/etc/hostname"
: >"$work/system/etc/machine-id"
rm -rf "$work/system/var/lib/apt/lists" "$work/system/var/cache/apt"
mkdir -p "$work/system/var/lib/apt/lists"

# Sectors of 512 bytes: a partition that the boot loader can read, and the root.
boot=2048
root=264192
end=4194304
truncate -s 2G "$work/raw"
printf 'label: dos\nstart=%d, size=%d, type=e, bootable\nstart=%d, type=83\n' $boot $((root - boot)) $root | sfdisk --quiet "$work/raw"
dd if=/usr/lib/syslinux/mbr/mbr.bin of="$work/raw" bs=440 count=1 conv=notrunc status=none
fat="$work/raw@@$((boot * 512))"
mformat -i "$fat" -T $((root - boot)) -H $boot ::
mcopy -i "$fat" "$work"/system/boot/vmlinuz-* ::vmlinuz
mcopy -i "$fat" "$work"/system/boot/initrd.img-* ::initrd
printf 'default debian\nprompt 0\nlabel debian\n kernel vmlinuz\n initrd initrd\n append root=/dev/vda2 ro console=ttyS0 quiet\n' >"$work/syslinux.cfg"
mcopy -i "$fat" "$work/syslinux.cfg" ::syslinux.cfg
syslinux --offset $((boot * 512)) --install "$work/raw"
mke2fs -q -t ext4 -d "$work/system" -E offset=$((root * 512)) "$work/raw" $(((end - root) / 2))k
qemu-img convert -f raw -O qcow2 "$work/raw" "$work/image"
mv "$work/image" "$image"

# The tools, and what they need that the root has not.
say "fetching" "$tools"
mkdir -p "$work/tools/partial"
fetch() {
	# shellcheck disable=SC2086 # one word each
	apt-get install -q -y --no-install-recommends --download-only -o Dir::State::status="$cache/root/var/lib/dpkg/status" \
		-o Dir::Cache::archives="$work/tools" -o APT::Sandbox::User=root $tools
}
fetch || { apt-get update -q; fetch; }
rm -r "$work/tools/partial"
mv "$work/tools" "$cache/tools"
stamp >"$cache/docs.stamp"
say "ready"
