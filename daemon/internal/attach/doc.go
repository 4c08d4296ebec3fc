// SPDX-License-Identifier: Apache-2.0

// Package attach attaches volumes to this host's instances and detaches them, live or stopped,
// each by one durable op. After any crash, every disk of a domain has a volume that is reserved
// for it, and no domain names a released volume. DESIGN.md has the plans and every interruption.
// The package refuses a volume that a migration moves.
//
// The daemon provides the Ports and the runner, calls Run, and wakes the ops that wait for
// "hypervisor" or "registry".
package attach
