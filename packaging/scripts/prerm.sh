#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Before a removal or an upgrade. dpkg passes "remove" or "upgrade"; rpm passes 0 for
# a removal and 1 for an upgrade. An upgrade restarts the service afterwards.
# shellcheck disable=SC2086 # SOCKETS is a list
set -e

PACKAGE=@PACKAGE@
SERVICE=$PACKAGE.service
SOCKETS="@SOCKETS@"

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
# At a purge program and configuration are gone, so the purge needs these lists.
if [ "$PACKAGE" = volferryd ] && [ -d /var/lib/volferry ]; then
	# dpkg removes the configuration before it asks whether a purge is allowed.
	cp -p /etc/volferry/volferryd.toml /var/lib/volferry/configuration || true
	/usr/sbin/volferryd directories >/var/lib/volferry/directories || rm -f /var/lib/volferry/directories
fi
if [ -d /run/systemd/system ]; then
	systemctl stop $SOCKETS "$SERVICE" || true
fi
if [ "$PACKAGE" = volferryd ] && [ -d /var/lib/volferry ]; then
	/usr/sbin/volferryd open-ops >/var/lib/volferry/open-ops || echo 'a journal that cannot be read' >/var/lib/volferry/open-ops
fi
if ! command -v deb-systemd-helper >/dev/null; then
	systemctl --no-reload disable $SOCKETS "$SERVICE" || true
fi
