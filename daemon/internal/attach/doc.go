// SPDX-License-Identifier: Apache-2.0

// Package attach attaches volumes to the instances of this host and detaches them, live or stopped,
// each by one durable op. After any crash, every disk of a domain has a volume that is reserved for
// it, and a released volume is named by no domain. DESIGN.md has the plans and every interruption.
// The package chooses the device and waits for the guest's confirmation. It refuses to touch a
// volume that a migration moves; otherwise it knows nothing of copies and overlays.
//
// The daemon provides the Ports (image.Storage, migrate.Manager and client.Registry fit) and the
// runner, and runs Run in a goroutine. It wakes the ops that wait for "hypervisor" or "registry"
// when these answer again.
package attach
