# shellcheck shell=sh disable=SC2154 # devices.sh, which sources it, sets by_id
# SPDX-License-Identifier: Apache-2.0
#
# Makes the devices of NVMe over TCP.

nqn=nqn.2026-11.test.volferry

# Namespaces over NVMe/TCP, by two addresses; the kernel makes each one device. And another
# subsystem, with two of them, by two others.
nvmet=/sys/kernel/config/nvmet
for n in 1 2 5 6; do
	port=$nvmet/ports/$n
	mkdir -p $port
	echo 127.0.0.$n >$port/addr_traddr
	echo tcp >$port/addr_trtype
	echo 4420 >$port/addr_trsvcid
	echo ipv4 >$port/addr_adrfam
done

# export_namespaces NQN PORTS DISKS exports disks.
export_namespaces() {
	subsystem=$nvmet/subsystems/$1
	mkdir -p "$subsystem"
	echo 1 >"$subsystem/attr_allow_any_host"
	n=1
	for disk in $3; do
		mkdir "$subsystem/namespaces/$n"
		printf '%s' "$disk" >"$subsystem/namespaces/$n/device_path"
		echo 1 >"$subsystem/namespaces/$n/enable"
		n=$((n + 1))
	done
	for n in $2; do ln -s "$subsystem" "$nvmet/ports/$n/subsystems/"; done
}
mkdir -p /etc/nvme
nvme gen-hostnqn >/etc/nvme/hostnqn
cat /proc/sys/kernel/random/uuid >/etc/nvme/hostid
export_namespaces $nqn "5 6" "$(disk 3) /dev/vg/larger_namespace"
for n in 5 6; do nvme connect --transport tcp --traddr 127.0.0.$n --trsvcid 4420 --nqn $nqn; done
export NAMESPACE_NQN=$nqn.connector
export_namespaces $NAMESPACE_NQN "1 2" "$(disk 9) $(disk 10)"
# namespace NQN NUMBER prints the name that a namespace has once it is connected.
namespace() { echo "$by_id/nvme-uuid.$(cat "$nvmet/subsystems/$1/namespaces/$2/device_uuid")"; }
NVME=$(until_there "$(namespace $nqn 1)")
LARGER_NVME=$(until_there "$(namespace $nqn 2)")
NAMESPACE=$(namespace $NAMESPACE_NQN 1)
NAMESPACE2=$(namespace $NAMESPACE_NQN 2)
export NAMESPACE NAMESPACE2 NVME LARGER_NVME LARGER_NVME_AT=$nvmet/subsystems/$nqn/namespaces/2
