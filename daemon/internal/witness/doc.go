// SPDX-License-Identifier: Apache-2.0

// Package witness asks two witnesses which images a domain's process has open: the hypervisor and
// the kernel. If libvirtd dies inside a call, the next libvirtd reads the old status, and reports
// the old chains until the QEMU process ends.
package witness
