// SPDX-License-Identifier: Apache-2.0

// Package adminapi is the daemon's HTTP API on its Unix socket: a handler for each of its
// routes (package routes). It decides nothing: the managers carry out what lasts, and the
// registry answers for what it knows.
package adminapi
