// SPDX-License-Identifier: Apache-2.0

// Package api is the language that the three programs speak: the JSON
// documents of the HTTP API, the closed list of error codes, and the words of
// the glossary as Go types. It imports the standard library only and knows
// nothing of libvirt, SQLite or HTTP handlers.
//
// Field names are snake_case and are stable: additions are free, everything
// else goes into CHANGELOG. Sizes are bytes, times RFC 3339 in UTC, and a
// duration says its unit in its name.
package api
