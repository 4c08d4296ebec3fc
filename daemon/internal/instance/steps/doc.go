// SPDX-License-Identifier: Apache-2.0

// Package steps does to the domains of this host what package instance is asked for: it has
// the plans of all op kinds of instances (plans.go), one file per step or per few steps
// that belong together, the checks that are made before an op is admitted and again by its
// first step, and what the steps share: their environment, the save images, and what the
// journal says of a guest before it was saved.
//
// It must not know who asks, or what callers are told: that is package instance. It must
// not know how libvirt, the registry or a migration work: they are behind hv.Hypervisor and
// the interfaces of ports.go. Every interruption is in DESIGN.md of package instance.
package steps
