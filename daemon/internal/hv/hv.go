// SPDX-License-Identifier: Apache-2.0

// Package hv is the hypervisor in Volferry's own nouns: domains, disks, image chains, block jobs,
// pools, events. Package libvirt implements it on a real libvirtd, package hv/hvtest on an
// in-memory model. One conformance suite in hvtest checks both.
//
// A call that changes something does not return when its context ends, but when its outcome is
// known, or with ErrUnavailable if it cannot be known.
//
// Calls decide nothing. Callers read the state, act, and read the state again, because a broken
// connection leaves the outcome of a call unknown.
package hv

// Hypervisor is the host's hypervisor. Implementations are safe for concurrent use. A domain is
// named by its UUID, a disk by its target (vda).
type Hypervisor interface {
	Domains
	Definitions
	Plug
	Chains
	BlockJobs
	WriteLimits
	DirtyTracker
	Power
	Memory
	Processes
	Pools
	Devices
	Host
}
