// SPDX-License-Identifier: Apache-2.0

// Package adminapi is the daemon's HTTP API on its Unix socket: a handler for each of its routes
// (package routes). It makes no decisions: managers carry out the operations, and the registry
// answers reads.
package adminapi
