#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# build.sh NFPM VERSION EPOCH OUT: makes deb and rpm of each program in the directory OUT.
# The programs are in bin/. The same sources make the same bytes: EPOCH is the time of
# every file, in seconds since 1970.
set -eu
umask 022

NFPM=$1 VERSION=$2 SOURCE_DATE_EPOCH=$3 OUT=$4
ARCH=$(go env GOARCH)
export ARCH VERSION SOURCE_DATE_EPOCH

# build/ has results of tests and measurements too, which stay.
rm -rf build/man build/scripts "$OUT"
mkdir -p build/man build/scripts "$OUT"
go run ./packaging/man build/man
gzip -9nf build/man/*.[1-9]
gzip -9nc CHANGELOG.md >build/changelog.gz
{
	printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n'
	printf 'Files: *\nCopyright: 2026 The Volferry developers\nLicense: Apache-2.0\n'
	printf ' On Debian systems the text of the license is in\n /usr/share/common-licenses/Apache-2.0.\n'
} >build/copyright

day=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
for package in volferryd volferry-registry volferryctl; do
	printf '%s (%s-1) unstable; urgency=medium\n\n  * What has changed is in changelog.gz.\n\n -- Volferry developers <volferry@users.noreply.github.com>  %s\n' \
		"$package" "$VERSION" "$day" | gzip -9nc >"build/$package.changelog.gz"
	sed "s|@PACKAGE@|$package|" packaging/lintian/overrides >"build/$package.lintian"
done

# script PACKAGE STATE SOCKETS...
script() {
	package=$1 state=$2
	shift 2
	for kind in postinst prerm postrm; do
		sed -e "s|@PACKAGE@|$package|; s|@STATE@|$state|; s|@SOCKETS@|$*|" "packaging/scripts/$kind.sh" >"build/scripts/$package.$kind"
	done
}
script volferryd /var/lib/volferry volferryd.socket volferryd-metrics.socket volferryd-privileged.socket volferryd-dialer.socket volferryd-connectors.socket volferryd-storage.socket volferryd-images.socket volferryd-access.socket volferryd-processes.socket volferryd-hook.socket
script volferry-registry /var/lib/volferry-registry volferry-registry.socket volferry-registry-metrics.socket

for package in volferryd volferry-registry volferryctl; do
	config=packaging/nfpm/$package.yaml
	"$NFPM" package --config "$config" --packager deb --target "$OUT/"
	# An rpm marks its documentation. nfpm omits marked files from a deb.
	sed -E '/\/\*,/!{/dst: \/usr\/share\/(man|doc)\//s/, file_info/, type: doc, file_info/}' "$config" >"build/$package.rpm.yaml"
	"$NFPM" package --config "build/$package.rpm.yaml" --packager rpm --target "$OUT/"
done
