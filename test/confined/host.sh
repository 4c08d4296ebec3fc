#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs on a machine of test/vm: makes it a hypervisor with the package of volferryd, and becomes a command.
# The machine's own daemon and libvirtd do nothing here.

set -eu

modprobe -a loop fuse
dpkg --install /source/dist/volferryd_*.deb
if selinuxenabled; then
	semodule --install /source/test/confined/libvirtd.cil
fi
systemctl stop volferryd.socket volferryd-metrics.socket volferryd.service
systemctl stop 'libvirtd*' 'virtlogd*' 'virtlockd*'
# shellcheck disable=SC2016 # the fields are dpkg-query's
echo "software of the machine: Linux $(uname -r)$(dpkg-query --show --showformat=', ${Package} ${Version}' libvirt-daemon-system qemu-system-x86)"
exec "$@"
