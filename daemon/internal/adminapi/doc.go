// SPDX-License-Identifier: Apache-2.0

// Package adminapi is the daemon's HTTP API on its Unix socket: a handler for each
// of its routes (package routes). It decides nothing: what lasts is asked of the
// migration manager, and what the registry knows is asked of the registry.
package adminapi
