#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# After an installation or an upgrade. dpkg passes "configure" and the previous version,
# if there was one; rpm passes 1 for an installation and 2 for an upgrade.
# shellcheck disable=SC2086 # SOCKETS is a list
set -e

PACKAGE=@PACKAGE@
SERVICE=$PACKAGE.service
SOCKETS="@SOCKETS@"

case "$1" in
configure) if [ -n "$2" ]; then upgrade=yes; else upgrade=; fi ;;
1) upgrade= ;;
2) upgrade=yes ;;
abort-upgrade | abort-remove | abort-deconfigure) upgrade=yes ;;
*) exit 0 ;;
esac

if [ -f "/usr/lib/sysusers.d/$PACKAGE.conf" ]; then
	systemd-sysusers "$PACKAGE.conf"
fi
systemd-tmpfiles --create "$PACKAGE.conf" || true

# The hook is no file of the package: dpkg would remove it before it asks whether the
# guards may be removed, and without the hook a guard blocks no start.
if [ "$PACKAGE" = volferryd ]; then
	install -d -m 0755 /etc/libvirt/hooks/qemu.d
	# An equal hook is not replaced: doctor compares its time with libvirt's last look for hooks.
	cmp -s /usr/share/volferry/volferry-guard /etc/libvirt/hooks/qemu.d/volferry-guard ||
		install -m 0755 /usr/share/volferry/volferry-guard /etc/libvirt/hooks/qemu.d/volferry-guard
	chmod 0755 /etc/libvirt/hooks/qemu.d/volferry-guard
fi

# Before a refused purge dpkg has removed the configuration, which names the directories
# with files that guests need.
if [ "$PACKAGE" = volferryd ]; then
	if [ -f /var/lib/volferry/refused-purge ] && [ -f /var/lib/volferry/configuration ]; then
		mv /var/lib/volferry/configuration /etc/volferry/volferryd.toml
	fi
	rm -f /var/lib/volferry/configuration /var/lib/volferry/refused-purge
fi

# A process gets its profile when it starts.
if [ -f "/etc/apparmor.d/$PACKAGE" ] && command -v aa-enabled >/dev/null && aa-enabled --quiet; then
	apparmor_parser --replace --write-cache "/etc/apparmor.d/$PACKAGE" ||
		echo "$PACKAGE: AppArmor does not take /etc/apparmor.d/$PACKAGE; the units alone confine the daemon." >&2
fi

if command -v semodule >/dev/null && selinuxenabled 2>/dev/null; then
	if semodule --install "/usr/share/$PACKAGE/volferry.cil"; then
		# Not the files of the state: guests may run on overlays there, and libvirt has labelled these.
		restorecon "/usr/sbin/$PACKAGE" @STATE@ @STATE@/overlays @STATE@/saves /run/volferry /etc/libvirt/hooks/qemu.d/volferry-guard 2>/dev/null || true
	else
		echo "$PACKAGE: SELinux does not take /usr/share/$PACKAGE/volferry.cil; the daemon has the label of services without a policy." >&2
	fi
fi

booted=
if [ -d /run/systemd/system ]; then
	booted=yes
	systemctl daemon-reload
fi

if command -v deb-systemd-helper >/dev/null; then
	for unit in $SERVICE $SOCKETS; do
		deb-systemd-helper unmask "$unit" >/dev/null
		if deb-systemd-helper --quiet was-enabled "$unit"; then
			deb-systemd-helper enable "$unit" >/dev/null
		else
			deb-systemd-helper update-state "$unit" >/dev/null
		fi
	done
elif [ -z "$upgrade" ]; then
	# An rpm follows the host's presets, and starts nothing itself.
	systemctl preset $SERVICE $SOCKETS || true
fi

[ -n "$booted" ] || exit 0
if [ -n "$upgrade" ]; then
	# The daemon's operations go on after the restart.
	systemctl try-restart "$SERVICE" || true
elif command -v deb-systemd-invoke >/dev/null; then
	deb-systemd-invoke start $SOCKETS "$SERVICE" || true
fi

if [ -z "$upgrade" ] && [ "$PACKAGE" = volferryd ]; then
	# libvirt looks for hooks when it starts. Its restart does not touch guests.
	for service in libvirtd.service virtqemud.service; do
		systemctl try-restart "$service" 2>/dev/null || true
	done
fi
