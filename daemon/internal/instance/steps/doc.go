// SPDX-License-Identifier: Apache-2.0

// Package steps changes the domains of this host for package instance. It has the plans of all op
// kinds of instances (plans.go), one file per step or per few related steps, the checks before an
// op is admitted and again in its first step, and the common parts of the steps: environment, save
// images, and the journal's records of a guest's state before its save.
//
// It does not know its callers. It uses libvirt, the registry and migrations through hv.Hypervisor
// and the interfaces of ports.go. DESIGN.md of package instance has every interruption.
package steps
