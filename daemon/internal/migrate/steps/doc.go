// SPDX-License-Identifier: Apache-2.0

// Package steps moves the bytes of a volume to another location, while its instance runs,
// is paused or is stopped, or while nothing is attached to it. It has the plans of all op
// kinds of a migration (plans.go), one file per step, and what the steps share: their
// environment, what libvirt and the kernel say of the disk, the pause of the guest, the
// fence, the progress.
//
// It must not know who asks for a migration, which op comes next or how a migration is
// shown: that is package migrate, which reads specs, kinds and outputs here. It must not
// know how libvirt, qemu-img or the registry are spoken to: they are behind hv.Hypervisor
// and the interfaces of ports.go. Every interruption is in DESIGN.md of package migrate.
package steps
