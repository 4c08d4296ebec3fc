// SPDX-License-Identifier: Apache-2.0

// Package adminapi is the daemon's HTTP API on its Unix socket: a handler for each route (package
// routes). Managers make all decisions, and the registry answers reads.
package adminapi
