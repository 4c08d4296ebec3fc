// SPDX-License-Identifier: Apache-2.0

// Package uplink is the daemon's side of the registry: it tells the registry of
// this host, its pools, instances and migrations, keeps what the registry last
// said, fetches the tasks that the registry has for this host, and lets go of
// what the host lost when it was fenced (DESIGN.md). It must not know what
// operations the daemon runs, only how to halt them, and how to keep out of those
// of an instance.
package uplink
