// SPDX-License-Identifier: Apache-2.0

// Package steps moves the bytes of a volume to another location, while its instance runs, is paused
// or is off, or while no instance has the volume. It has the plans of all op kinds of a migration
// (plans.go), one file per step, and common code: the environment, the views of libvirt and the
// kernel, the guest's pause, the fence and the progress.
//
// It must not know who requests a migration, which op is next or how a migration is shown: that is
// package migrate, which reads specs, kinds and outputs here. It reaches libvirt, qemu-img and the
// registry only through hv.Hypervisor and the interfaces of ports.go. DESIGN.md of package migrate
// lists every interruption.
package move
