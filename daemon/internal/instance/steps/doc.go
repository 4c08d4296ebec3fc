// SPDX-License-Identifier: Apache-2.0

// Package steps changes the domains of this host for package instance. It has the plans of all op
// kinds of instances (plans.go), one file per step or per few related steps, the checks that are
// made before an op is admitted and again by its first step, and the parts that steps share: their
// environment, the save images, and the journal's records of a guest's state before its save.
//
// Its callers, and their answers, are the matter of package instance. It does not know how libvirt,
// the registry or a migration work: it uses hv.Hypervisor and the interfaces of ports.go. DESIGN.md
// of package instance has every interruption.
package steps
