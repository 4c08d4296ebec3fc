#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes what the nodes of a cluster filesystem are made of, in $VOLFERRY_CLUSTERFS_CACHE (default:
# .cache/clusterfs at the top of the repository): a root of Debian 12 with its own kernel, whose cloud
# kernel has neither OCFS2 nor GFS2, and with the tools of OCFS2. Nothing is started or enabled on
# the host. Where everything is there already it does nothing and needs no network. It needs root.

set -eu
umask 022

name=clusterfs
top=$(cd "$(dirname "$0")/../.." && pwd)
cache=${VOLFERRY_CLUSTERFS_CACHE:-$top/.cache/clusterfs}
suite=bookworm
# shellcheck source=test/debian.sh
. "$top/test/debian.sh"

finish() { :; }

install_missing mmdebstrap qemu-system-x86
make_root "$0" "linux-image-amd64,kmod,ocfs2-tools,busybox-static"
