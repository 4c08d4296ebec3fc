// SPDX-License-Identifier: Apache-2.0

// Package steps moves the bytes of a volume to another location, while its instance runs, is paused
// or is stopped, or while the volume is attached to no instance. It has the plans of all op kinds
// of a migration (plans.go), one file per step, and the code that steps share: their environment,
// the views of libvirt and the kernel, the guest's pause, the fence and the progress.
//
// It must not know who requests a migration, which op is next or how a migration is shown: package
// migrate does that, and reads specs, kinds and outputs here. It reaches libvirt, qemu-img and the
// registry only through hv.Hypervisor and the interfaces of ports.go. DESIGN.md of package migrate
// lists every interruption.
package steps
