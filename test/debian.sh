# shellcheck shell=sh disable=SC2154 # name, top, cache and suite are set by the script that sources it
# SPDX-License-Identifier: Apache-2.0
#
# What the scripts share that make Debian roots for tests, which source it. They set name, top,
# cache, the directory of what they make, and suite, the release of Debian; NAME-backports is NAME
# with what its backports have newer.

mirror=${VOLFERRY_MACHINE_MIRROR:-} # empty: Debian's own

say() { echo "$name: $*" >&2; }

missing_packages() {
	for package; do
		status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
		[ "$status" = "install ok installed" ] || echo "$package"
	done
}

# install_missing PACKAGES... installs those that this host lacks.
install_missing() {
	missing=$(missing_packages "$@")
	[ -n "$missing" ] || return 0
	# shellcheck disable=SC2086 # one word each
	say "installing" $missing
	apt-get update -q
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
}

# lock FILE waits until no other test run is at it.
lock() {
	mkdir -p "$cache"
	exec 9>"$1"
	flock 9
}

# debian INCLUDE DIR makes a root of Debian with these packages.
debian() {
	include=$1 dir=$2 release=${suite%-backports}
	set --
	# The backports come from the mirror of the release.
	[ "$suite" = "$release" ] || set -- --aptopt="APT::Default-Release \"$suite\"" \
		--setup-hook="sed -n 's/ $release main/ $suite main/p' \"\$1/etc/apt/sources.list\" >\"\$1/etc/apt/sources.list.d/backports.list\""
	mmdebstrap --quiet --variant=minbase --include="$include" "$@" "$release" "$dir" ${mirror:+"$mirror"}
	# On a busy machine a program of the root may still hold it when mmdebstrap ends.
	! mountpoint -q "$dir/proc" || umount --lazy "$dir/proc"
}

# root_stamp SCRIPT is another one when the script, this file, the release or the directory is: a
# copy of a root has lost who owns what.
root_stamp() { echo "$(cat "$1" "$top/test/debian.sh" | sha256sum) $suite $(stat -c %i "$cache/root")"; }

# make_root SCRIPT INCLUDE makes $cache/root, unless the script has made it before. finish ROOT
# is the script's own, for what the root needs besides.
make_root() {
	lock "$cache/lock"
	if [ -f "$cache/stamp" ] && [ -d "$cache/root" ] && [ "$(cat "$cache/stamp")" = "$(root_stamp "$1")" ]; then
		say "ready"
		return 0
	fi
	say "making a root of Debian $suite"
	rm -rf "$cache/stamp" "$cache/root" "$cache/root.new"
	trap 'rm -rf "$cache/root.new"' EXIT INT TERM
	debian "$2" "$cache/root.new"
	finish "$cache/root.new"
	rm -rf "$cache/root.new/var/lib/apt/lists" "$cache/root.new/etc/resolv.conf"
	mkdir "$cache/root.new/var/lib/apt/lists"
	mv "$cache/root.new" "$cache/root"
	root_stamp "$1" >"$cache/stamp"
	say "ready"
}
