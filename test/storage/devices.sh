#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs in a virtual machine of test/vm: makes its storage and then runs a command, which finds
# the devices by variables of its environment. The disks of the machine are: vda a physical volume
# of LVM, vdb and vdc what iSCSI and NVMe over TCP export, vdd /var, vde the volume group "rounding".
#
#   THICK, THICK2  logical volumes            THIN, THIN2  thin ones, of the pool vg/pool
#   LARGER         a logical volume that is one extent larger
#   MULTIPATH      an iSCSI LUN by two paths  NVME         a namespace by two paths
#
# Each has as many bytes as VOLUME_BYTES says.

set -eu

iqn=iqn.2026-11.test.volferry
nqn=nqn.2026-11.test.volferry

ip link set lo up
mkfs.ext4 -q /dev/vdd
mkdir -p /mnt/var
mount /dev/vdd /mnt/var
cp -a /var/. /mnt/var/
mount --move /mnt/var /var

modprobe -a loop dm_mod dm_thin_pool dm_multipath dm_service_time target_core_mod target_core_iblock iscsi_target_mod iscsi_tcp \
	nvmet nvmet_tcp nvme_tcp
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
mkdir -p /run/lock /run/lvm
/lib/systemd/systemd-udevd --daemon
udevadm trigger
udevadm settle

# LVM, with extents of 4 MiB.
pvcreate -q /dev/vda
vgcreate -q vg /dev/vda
lvcreate -q -y --size 600M --thinpool pool vg
for name in thin1 thin2; do lvcreate -q -y --virtualsize "${VOLUME_BYTES}b" --thinpool pool --name $name vg; done
for name in thick1 thick2; do lvcreate -q -y --size "${VOLUME_BYTES}b" --name $name vg; done
lvcreate -q -y --size "$((VOLUME_BYTES + (4 << 20)))b" --name larger vg

# A pool of libvirt whose extents are larger than a volume, and no part of it.
vgcreate -q --physicalextentsize 48M rounding /dev/vde

# A LUN over iSCSI, by two addresses, as one device of multipath.
target=/sys/kernel/config/target
lun=$target/core/iblock_0/lun
mkdir -p $lun
echo "udev_path=/dev/vdb" >$lun/control
echo 0badcafe1234 >$lun/wwn/vpd_unit_serial
echo 1 >$lun/enable
group=$target/iscsi/$iqn/tpgt_1
mkdir -p $group/lun/lun_0 $group/np/127.0.0.1:3260 $group/np/127.0.0.2:3260
ln -s $lun $group/lun/lun_0/lun
echo 0 >$group/attrib/authentication
echo 1 >$group/attrib/generate_node_acls
echo 0 >$group/attrib/demo_mode_write_protect
echo 1 >$group/enable
echo "InitiatorName=$iqn.host" >/etc/iscsi/initiatorname.iscsi
iscsid
iscsiadm --mode discovery --type sendtargets --portal 127.0.0.1:3260
cat >/etc/multipath.conf <<-'END'
	defaults {
		user_friendly_names no
		find_multipaths no
	}
	blacklist {
		devnode "^(loop|nbd|nvme|vd)"
	}
END
multipathd
iscsiadm --mode node --login
udevadm settle

# A namespace over NVMe/TCP, by two addresses; the kernel makes them one device.
nvmet=/sys/kernel/config/nvmet
subsystem=$nvmet/subsystems/$nqn
mkdir -p $subsystem/namespaces/1
echo 1 >$subsystem/attr_allow_any_host
printf /dev/vdc >$subsystem/namespaces/1/device_path
echo 1 >$subsystem/namespaces/1/enable
mkdir -p /etc/nvme
nvme gen-hostnqn >/etc/nvme/hostnqn
cat /proc/sys/kernel/random/uuid >/etc/nvme/hostid
for n in 1 2; do
	port=$nvmet/ports/$n
	mkdir -p $port
	echo 127.0.0.$n >$port/addr_traddr
	echo tcp >$port/addr_trtype
	echo 4420 >$port/addr_trsvcid
	echo ipv4 >$port/addr_adrfam
	ln -s $subsystem $port/subsystems/
	nvme connect --transport tcp --traddr 127.0.0.$n --trsvcid 4420 --nqn $nqn
done

# until waits for a device that the kernel or a daemon makes.
until_there() {
	for _ in $(seq 300); do
		for found in "$@"; do
			[ ! -b "$found" ] || { echo "$found"; return; }
		done
		sleep 0.1
	done
	echo "there is no $*" >&2
	exit 1
}
MULTIPATH=$(until_there /dev/disk/by-id/dm-uuid-mpath-*)
NVME=$(until_there /dev/disk/by-id/nvme-uuid.*)
export MULTIPATH NVME
export THICK=/dev/vg/thick1 THICK2=/dev/vg/thick2 THIN=/dev/vg/thin1 THIN2=/dev/vg/thin2 LARGER=/dev/vg/larger
lsblk
exec "$@"
