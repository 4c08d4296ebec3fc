// SPDX-License-Identifier: Apache-2.0

// Package attach attaches volumes to the instances of this host and detaches them, live or stopped,
// each by one durable op. After any crash, every disk of a domain has a volume that is reserved for
// it, and no domain names a released volume. DESIGN.md has the plans and every interruption. The
// package refuses to touch a volume that a migration moves; otherwise it knows nothing of copies
// and overlays.
//
// The daemon provides the Ports (image.Storage, migrate.Manager and client.Registry fit) and the
// runner, and calls Run. It wakes the ops that wait for "hypervisor" or "registry".
package attach
