#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the lab needs on Debian, and unpacks the Debian cloud kernel for
# its guests into $VOLFERRY_LAB_CACHE (default: .cache/lab at the top of the
# repository). Nothing is started or enabled on the host, and the kernel is not
# installed. Where everything is there already it does nothing, needs no network
# and no root.

set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${VOLFERRY_LAB_CACHE:-$top/.cache/lab}
# libvirt-daemon-system makes the user libvirt-qemu: libvirtd does not start its
# QEMU driver without, whatever user its configuration names.
packages="libvirt-daemon libvirt-daemon-system libvirt-daemon-driver-qemu libvirt-clients
	qemu-system-x86 qemu-utils ovmf systemd-boot-efi mtools fdisk xfsprogs btrfs-progs e2fsprogs exfat-fuse exfatprogs util-linux mount strace"

say() { echo "lab: $*" >&2; }

# refresh fetches the package lists, once.
refreshed=
refresh() {
	[ -n "$refreshed" ] || apt-get update -q
	refreshed=yes
}

# lists_missing: a fresh container image has no package lists at all.
lists_missing() { [ -z "$(apt-cache pkgnames linux-image-cloud-amd64)" ]; }

missing_packages() {
	for package in $packages; do
		status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
		[ "$status" = "install ok installed" ] || echo "$package"
	done
}

# install_packages keeps the maintainer scripts from starting services, by the
# means that Debian has for that (invoke-rc.d asks policy-rc.d), and puts back
# what was there.
install_packages() (
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		trap 'rm -f "$policy"' EXIT INT TERM
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
)

# download: as root, apt would drop privileges for a download and then could not
# write here; what it downloads is verified all the same.
download() { apt-get download -q -o APT::Sandbox::User=root "$1"; }

# fetch_kernel leaves $cache/kernel/vmlinuz and $cache/kernel/modules/.
fetch_kernel() (
	package=$(apt-cache depends linux-image-cloud-amd64 |
		sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1)
	[ -n "$package" ] || { say "linux-image-cloud-amd64 names no kernel package"; exit 1; }
	say "fetching $package"
	work=$(mktemp -d "$cache/unpack.XXXXXX")
	trap 'rm -rf "$work"' EXIT INT TERM
	cd "$work"
	download "$package" || { refresh; download "$package"; }
	dpkg-deb --extract ./*.deb root
	modules=$(echo root/lib/modules/*/kernel root/usr/lib/modules/*/kernel | tr ' ' '\n' | grep -v '\*')
	mkdir kernel
	cp root/boot/vmlinuz-* kernel/vmlinuz
	mv "$modules" kernel/modules
	echo "$package" >kernel/package
	rm -rf "$cache/kernel"
	mv kernel "$cache/kernel"
)

missing=$(missing_packages)
if [ -n "$missing" ]; then
	! lists_missing || refresh
	# shellcheck disable=SC2086 # one word each
	say "installing" $missing
	# shellcheck disable=SC2086
	install_packages $missing || { refresh; install_packages $missing; }
fi

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # two test runs may start together
if [ ! -f "$cache/kernel/package" ]; then
	! lists_missing || refresh
	fetch_kernel
fi
say "ready, kernel $(cat "$cache/kernel/package")"
