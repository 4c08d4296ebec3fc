// SPDX-License-Identifier: Apache-2.0

// Package uplink is the daemon's side of the registry: it reports this host, its pools,
// instances and migrations to the registry, keeps what the registry last said, fetches the
// registry's tasks for this host, and lets go of what the host lost when it was fenced
// (DESIGN.md). It must not know what operations the daemon runs, only how to halt them and
// how to keep out of the way of an instance's operations.
package uplink
