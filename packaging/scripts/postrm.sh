#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# After a removal, which keeps the state and the libvirt hook that obeys the guards there,
# or a purge, which only dpkg has. A purge fails while guests may need a file of the state.
# shellcheck disable=SC2086 # SOCKETS is a list
set -e

PACKAGE=@PACKAGE@
SERVICE=$PACKAGE.service
SOCKETS="@SOCKETS@"
STATE=@STATE@

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
if command -v deb-systemd-helper >/dev/null; then
	case "$1" in
	remove) deb-systemd-helper mask $SERVICE $SOCKETS >/dev/null || true ;;
	purge)
		deb-systemd-helper purge $SERVICE $SOCKETS >/dev/null || true
		deb-systemd-helper unmask $SERVICE $SOCKETS >/dev/null || true
		;;
	esac
fi
case "$1" in
remove | 0)
	# Both daemons have the module.
	if command -v semodule >/dev/null && [ ! -e /usr/sbin/volferryd ] && [ ! -e /usr/sbin/volferry-registry ]; then
		semodule --remove volferry 2>/dev/null || true
	fi
	;;
esac
[ "$1" = purge ] || exit 0

remove_hook() {
	[ "$PACKAGE" = volferryd ] || return 0
	rm -f /etc/libvirt/hooks/qemu.d/volferry-guard
	[ ! -d /etc/libvirt/hooks/qemu.d ] || rmdir --ignore-fail-on-non-empty /etc/libvirt/hooks/qemu.d || true
}
if [ ! -d "$STATE" ]; then # the daemon never ran, or the state was removed by hand
	remove_hook
	exit 0
fi

# elsewhere names the files that guests may need in the configured directories, which the file
# directories has from before the removal. An overlay's name is the id of a migration, the name
# of a guest's memory has the ids of guest and migration; other files there are not ours.
elsewhere() {
	[ -r "$STATE/directories" ] || return 0
	uuid='????????-????-????-????-????????????'
	while read -r what dir; do
		case "$what" in
		overlays) find "$dir" -mindepth 1 -maxdepth 1 -name "$uuid.qcow2" ;;
		saves) find "$dir" -mindepth 1 -maxdepth 1 -name "$uuid.$uuid.ram" ;;
		guards) find "$dir" -mindepth 1 -maxdepth 1 -name "$uuid" ;;
		esac 2>/dev/null || true
	done <"$STATE/directories"
}

# needed names the files that guests, or other hosts, may still need.
needed() {
	case "$PACKAGE" in
	volferryd)
		find "$STATE/overlays" "$STATE/saves" "$STATE/guards" -mindepth 1 2>/dev/null || true
		elsewhere
		cat "$STATE/open-ops" 2>/dev/null || true
		;;
	volferry-registry) find "$STATE" -name registry.db 2>/dev/null || true ;;
	esac
}
kept=$(needed | sort -u | head -n 5)
if [ -n "$kept" ]; then
	case "$PACKAGE" in
	volferryd)
		cat >&2 <<-END
			$PACKAGE: $STATE is kept. It may hold writes of guests, a guard or an operation
			that is not over:
			$kept
			Install $PACKAGE again, end what is open (volferryctl migration list, and
			volferryctl op list), and purge then.
		END
		if [ -f "$STATE/configuration" ]; then
			: >"$STATE/refused-purge"
			echo "Its configuration is kept, and installing $PACKAGE again puts it back." >&2
		fi
		exit 1
		;;
	volferry-registry)
		cat >&2 <<-END
			$PACKAGE: $STATE is kept. It has the only record of what is attached where at
			this site:
			$kept
			Once no host needs it any more: rm -r $STATE
		END
		exit 0
		;;
	esac
fi
remove_hook
find "$STATE" -mindepth 1 -delete
rmdir "$STATE" || true # the state may be a mount of its own
