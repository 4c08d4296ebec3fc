#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs in a virtual machine of test/vm: makes its storage and then runs a command, which finds
# the devices by variables of its environment. The disks of the machine are in DISKS: a physical volume
# of LVM, what iSCSI and NVMe over TCP export, /var, the volume group "rounding", and five
# that targets export with which there is no session. A kernel without NVMe over TCP has none of its devices.
#
#   THICK, THICK2  logical volumes            THIN, THIN2  thin ones, of the pool vg/pool
#   MULTIPATH      an iSCSI LUN by two paths  NVME         a namespace by two paths
#
# The paths of MULTIPATH are those by 127.0.0.3:3260 and 127.0.0.4:3260, which LARGER_MULTIPATH alone has besides. It answers with
# errors five seconds after both are lost. What its target has it in is MULTIPATH_DISK, a map of the device mapper that can be made slow.
# Those of NVME and LARGER_NVME are by 127.0.0.5:4420 and 127.0.0.6:4420, which no other subsystem has.
#
# Each has as many bytes as VOLUME_BYTES says. One extent of 4 MiB larger is one of each kind: LARGER, a logical volume, LARGER_THIN,
# LARGER_MULTIPATH and LARGER_NVME, whose directory in configfs is LARGER_NVME_AT.
#
# And those that are there once a connector has made a
# session, with the names of their targets:
#
#   NAMESPACE, NAMESPACE2, NAMESPACE_NQN  of NVMe over TCP, by 127.0.0.1:4420 and 127.0.0.2:4420
#   UNIT, UNIT2, UNIT_IQN                 of iSCSI, by 127.0.0.1:3260 and 127.0.0.2:3260
#   SINGLE, SINGLE_IQN                    of iSCSI, by 127.0.0.1:3260 alone
#
# And a LUN of a SCSI host of the machine's own: LUN is its directory in configfs, in which LUN_UNIT is linked, and LUN_UNIT2 may be
# in its place.
#
# And directories that are mounted over NFS 4.2, whose server "rpc.nfsd 0" ends:
#
#   EXPORT     root is root there             SQUASHED  root is nobody
#   GIVEN      everybody is the user that QEMU runs as
#
# EXPORT_AT_SERVER is the directory that EXPORT is, on the server's own filesystem.
#
# And a directory on XFS where each user may have a quota: QUOTA.

set -eu

iqn=iqn.2026-11.test.volferry

# What is started here is not started by systemd a second time, where that is process 1. The tests
# start a libvirtd of their own.
if [ -d /run/systemd/system ]; then
	systemctl mask --runtime iscsid.socket iscsid.service multipathd.socket multipathd.service
	systemctl stop 'libvirtd*' 'virtlogd*' 'virtlockd*'
fi
# disk NUMBER prints the path of a disk, from 1.
disk() { echo "$DISKS" | cut -d ' ' -f "$1"; }
PV=$(disk 1) ISCSI=$(disk 2) VAR=$(disk 4) ROUNDING=$(disk 5)

ip link set lo up
if [ "$(findmnt -n -o FSTYPE --target /var)" != ext4 ]; then # the root is in memory
	mkfs.ext4 -q "$VAR"
	mkdir -p /mnt/var
	mount "$VAR" /mnt/var
	cp -a /var/. /mnt/var/
	mount --bind /mnt/var /var # it cannot be moved where systemd has made mounts shared
fi

modprobe -a loop dm_mod dm_delay dm_thin_pool dm_multipath dm_service_time target_core_mod target_core_iblock iscsi_target_mod iscsi_tcp tcm_loop
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
mkdir -p /run/lock /run/lvm
[ -S /run/udev/control ] || /lib/systemd/systemd-udevd --daemon
udevadm trigger
udevadm settle

# LVM, with extents of 4 MiB.
pvcreate -q "$PV"
vgcreate -q vg "$PV"
lvcreate -q -y --size 600M --thinpool pool vg
for name in thin1 thin2; do lvcreate -q -y --virtualsize "${VOLUME_BYTES}b" --thinpool pool --name $name vg; done
for name in thick1 thick2 lun1 lun2; do lvcreate -q -y --size "${VOLUME_BYTES}b" --name $name vg; done
larger_bytes=$((VOLUME_BYTES + (4 << 20)))
for name in larger larger_unit larger_namespace; do lvcreate -q -y --size "${larger_bytes}b" --name $name vg; done
lvcreate -q -y --virtualsize "${larger_bytes}b" --thinpool pool --name larger_thin vg

# A pool of libvirt whose extents are larger than a volume, and no part of it.
vgcreate -q --physicalextentsize 48M rounding "$ROUNDING"

# unit NAME DISK SERIAL makes a disk a logical unit.
core=/sys/kernel/config/target/core/iblock_0
unit() {
	mkdir -p $core/"$1"
	echo "udev_path=$2" >$core/"$1"/control
	echo "$3" >$core/"$1"/wwn/vpd_unit_serial
	echo 1 >$core/"$1"/enable
}

# export_units IQN ADDRESSES UNITS exports units over iSCSI.
export_units() {
	group=/sys/kernel/config/target/iscsi/$1/tpgt_1
	for address in $2; do mkdir -p "$group/np/$address:3260"; done
	n=0
	for name in $3; do
		mkdir -p "$group/lun/lun_$n"
		ln -s $core/"$name" "$group/lun/lun_$n/$name"
		n=$((n + 1))
	done
	echo 0 >"$group/attrib/authentication"
	echo 1 >"$group/attrib/generate_node_acls"
	echo 0 >"$group/attrib/demo_mode_write_protect"
	echo 1 >"$group/enable"
}

# LUNs over iSCSI, by two addresses, each as one device of multipath.
export MULTIPATH_DISK=multipath_disk
dmsetup create $MULTIPATH_DISK --table "0 $(blockdev --getsz "$ISCSI") linear $ISCSI 0"
unit first /dev/mapper/$MULTIPATH_DISK 0badcafe1234
unit larger /dev/vg/larger_unit 0badcafe1235
export_units $iqn "127.0.0.3 127.0.0.4" "first larger"
echo "InitiatorName=$iqn.host" >/etc/iscsi/initiatorname.iscsi
iscsid
iscsiadm --mode discovery --type sendtargets --portal 127.0.0.3:3260
iscsiadm --mode node --targetname $iqn --op update --name node.session.timeo.replacement_timeout --value 5
cat >/etc/multipath.conf <<-'END'
	defaults {
		user_friendly_names no
		find_multipaths no
	}
	blacklist {
		devnode "^(loop|nbd|nvme|vd|ubd)"
		wwid "^360014050dec0de"
	}
	overrides {
		no_path_retry fail
	}
END
multipathd
iscsiadm --mode node --login
udevadm settle

# The WWID of such a unit is made of its serial number.
unit second "$(disk 6)" 0badcafe0001
unit third "$(disk 7)" 0badcafe0002
unit fourth "$(disk 8)" 0badcafe0003
export UNIT_IQN=$iqn.connector SINGLE_IQN=$iqn.single
export_units $UNIT_IQN "127.0.0.1 127.0.0.2" "second third"
export_units $SINGLE_IQN 127.0.0.1 fourth
# wwid SERIAL prints it.
wwid() { echo "36001405${1}0000000000000"; }
by_id=/dev/disk/by-id
UNIT=$by_id/dm-uuid-mpath-$(wwid 0badcafe0001)
UNIT2=$by_id/dm-uuid-mpath-$(wwid 0badcafe0002)
SINGLE=$by_id/scsi-$(wwid 0badcafe0003)
export UNIT UNIT2 SINGLE

# A LUN without a network, which multipath leaves alone.
unit lun1 /dev/vg/lun1 0dec0de00001
unit lun2 /dev/vg/lun2 0dec0de00002
group=/sys/kernel/config/target/loopback/naa.5001405000000001/tpgt_1
mkdir -p $group
echo naa.5001405000000002 >$group/nexus
mkdir -p $group/lun/lun_0
export LUN=$group/lun/lun_0 LUN_UNIT=$core/lun1 LUN_UNIT2=$core/lun2
ln -s $LUN_UNIT $LUN/unit
udevadm settle

# until_there NAME waits for a device that the kernel or a daemon makes, and prints its name.
until_there() {
	for _ in $(seq 300); do
		[ ! -b "$1" ] || { echo "$1"; return; }
		sleep 0.1
	done
	echo "there is no $1" >&2
	exit 1
}
MULTIPATH=$(until_there "$by_id/dm-uuid-mpath-$(wwid 0badcafe1234)")
LARGER_MULTIPATH=$(until_there "$by_id/dm-uuid-mpath-$(wwid 0badcafe1235)")
export MULTIPATH LARGER_MULTIPATH

if modprobe -a nvmet nvmet_tcp nvme_tcp 2>/dev/null; then
	# shellcheck source=test/storage/nvme.sh
	. "$(dirname "$0")/nvme.sh"
else
	echo 'this kernel has no NVMe over TCP'
fi

# The server lets clients take up again what they had for ten seconds and not for ninety.
modprobe -a nfsd nfs
mount -t nfsd nfsd /proc/fs/nfsd
mkdir -p /var/lib/nfs/rpc_pipefs
mount -t rpc_pipefs sunrpc /var/lib/nfs/rpc_pipefs
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
nfsdcld
rpc.mountd --no-nfs-version 3
rpc.nfsd --no-nfs-version 3 4
# The machine's own root cannot be exported, so the root of what NFS 4 shows is this directory.
mkdir -p /var/export
exportfs -o ro,fsid=0,no_subtree_check 127.0.0.1:/var/export
# mount_export NAME FSID OPTIONS exports a directory there, as a filesystem with options of its own, and mounts it.
mount_export() {
	mkdir -p "/var/export/$1" "/mnt/$1"
	mount --bind "/var/export/$1" "/var/export/$1"
	chmod 0777 "/var/export/$1"
	exportfs -o "rw,sync,fsid=$2,no_subtree_check,$3" "127.0.0.1:/var/export/$1"
	mount -t nfs4 -o vers=4.2,sec=sys "127.0.0.1:/$1" "/mnt/$1"
}
mount_export root 1 no_root_squash
mount_export squashed 2 root_squash
mount_export given 3 "all_squash,anonuid=$(id -u libvirt-qemu),anongid=$(id -g libvirt-qemu)"
export EXPORT=/mnt/root EXPORT_AT_SERVER=/var/export/root SQUASHED=/mnt/squashed GIVEN=/mnt/given

truncate --size 320M /var/quota.xfs
mkfs.xfs -q /var/quota.xfs
mkdir -p /mnt/quota
mount -o loop,uquota /var/quota.xfs /mnt/quota
export QUOTA=/mnt/quota

export THICK=/dev/vg/thick1 THICK2=/dev/vg/thick2 THIN=/dev/vg/thin1 THIN2=/dev/vg/thin2 LARGER=/dev/vg/larger LARGER_THIN=/dev/vg/larger_thin
lsblk

# Nobody else can look into the machine: what waits there without a way to end it is said, with where in the kernel.
waiting() {
	for thread in /proc/[0-9]*/task/[0-9]*; do
		grep -qs '^State:.D' "$thread/status" || continue
		echo "waiting: $(tr '\0' ' ' <"$thread/cmdline")"
		cat "$thread/stack" 2>/dev/null || continue # it has ended
	done
}
while sleep 300; do waiting; done &

exec "$@"
