// SPDX-License-Identifier: Apache-2.0

// Package migrate moves the bytes of a volume to another location, while its
// instance runs, is paused or is stopped, or while nothing is attached to it.
// It owns the plans (one file per step), the checks before anything is touched,
// the state of a migration, and the manager that the API calls.
//
// It must not know how libvirt, qemu-img or the registry are spoken to: they
// are behind hv.Hypervisor and the interfaces of ports.go. DESIGN.md beside
// this file has the definitions, the phases, every interruption and what holds
// after it.
package migrate
