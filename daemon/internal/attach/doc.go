// SPDX-License-Identifier: Apache-2.0

// Package attach attaches volumes to the instances of this host and detaches them, live or
// stopped, each as one durable op: whatever dies in between, a domain has no disk whose
// volume is not reserved for it, and no volume is given back that a domain still names.
// DESIGN.md has the plans and every interruption. The package chooses the device and waits
// for the guest's own confirmation. It knows nothing of copies and overlays, except that it
// refuses to touch a volume that a migration moves.
//
// The daemon gives it its Ports (image.Storage, migrate.Manager and client.Registry fit)
// and the runner of its ops, and has Run as a task of its own. The daemon also wakes the
// ops that wait for "hypervisor" or "registry" when these are back, as it does for
// migrations.
package attach
