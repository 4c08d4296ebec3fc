// SPDX-License-Identifier: Apache-2.0

// Package uplink is the daemon's connection to the registry. It reports this host, its pools,
// instances and migrations, stores the last view of the registry, fetches the registry's tasks,
// and after a fence releases the host's lost volumes (DESIGN.md). It can halt the daemon's
// operations, but start none.
package uplink
