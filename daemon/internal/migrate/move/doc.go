// SPDX-License-Identifier: Apache-2.0

// Package move has the terms that all steps of a migration share: the spec, the op kinds, the
// ports to hypervisor, images and registry, the state of the disk, the fence of this host, the
// progress, and the errors.
//
// The packages of the steps and their plans (package plans) do not depend on package migrate,
// which reads specs, kinds and outputs here. They reach libvirt, qemu-img and the registry only
// through hv.Hypervisor and the interfaces of ports.go. DESIGN.md of package migrate lists every
// interruption.
package move
