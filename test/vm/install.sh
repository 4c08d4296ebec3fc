#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what virtual machines of tests need on Debian, and makes their root, Debian 12 with
# its own kernel, libvirt, QEMU, LVM, iSCSI, multipath, NVMe and NFS, in $VOLFERRY_VM_CACHE (default: .cache/vm at
# the top of the repository). Nothing is started or enabled on the host. Where everything
# is there already it does nothing and needs no network. It needs root.

set -eu
umask 022

name=vm
top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${VOLFERRY_VM_CACHE:-$top/.cache/vm}
suite=bookworm
# shellcheck source=test/debian.sh
. "$top/test/debian.sh"

finish() { :; }

install_missing mmdebstrap qemu-system-x86
storage="udev,kmod,lvm2,thin-provisioning-tools,open-iscsi,multipath-tools,nvme-cli,sg3-utils,nfs-kernel-server,python3-os-brick"
lab="libvirt-daemon-system,libvirt-clients,qemu-system-x86,qemu-utils,ovmf,systemd-boot-efi,mtools,fdisk,xfsprogs,btrfs-progs,e2fsprogs,strace"
make_root "$0" "linux-image-amd64,iproute2,procps,util-linux,mount,$storage,$lab"
