// SPDX-License-Identifier: Apache-2.0

// Package witness hears two witnesses of what a domain's process has: the hypervisor,
// and the kernel, which knows what is open. A libvirtd that died inside a call comes back
// with its old status, and shows the chains of before for as long as the process lives.
// The package must not know what the images are to the caller, nor what
// he makes of it.
package witness
