// SPDX-License-Identifier: Apache-2.0

// Package witness asks two witnesses what a domain's process has open: the hypervisor, and
// the kernel. A libvirtd that died inside a call comes back with its old status, and shows
// the chains of before for as long as the process lives. The package must not know what the
// images are to the caller, or what the caller makes of the answer.
package witness
