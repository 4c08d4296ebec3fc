#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs on a machine of test/vm: installs the packages, starts each service, and prints the service's
# label as the kernel has it, after the label that the unit, or the module for SELinux, gives it.

set -eu

modprobe -a loop fuse
denied() {
	dmesg | grep -E 'apparmor="DENIED"|avc: +denied' || true
	echo "end of what was denied"
}
trap denied EXIT
dpkg --install /source/dist/volferry-registry_*.deb /source/dist/volferryctl_*.deb /source/dist/volferryd_*.deb >/dev/null

for unit in volferry-registry volferryd volferryd-access volferryd-connectors volferryd-dialer volferryd-hook \
	volferryd-privileged volferryd-processes volferryd-storage; do
	systemctl start "$unit.service"
	pid=$(systemctl show --value --property=MainPID "$unit.service")
	until readlink "/proc/$pid/exe" | grep -q '^/usr/sbin/volferry'; do # it is systemd's program before
		sleep 0.1
	done
	echo "label of $unit: $(tr -d '\000' <"/proc/$pid/attr/current")"
done
# The program of an instance of volferryd-images@ ends with its connection.
volferryctl doctor -o json || true
