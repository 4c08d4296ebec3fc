// SPDX-License-Identifier: Apache-2.0

// Package api defines the JSON documents of the HTTP API, the closed list of error codes, and the
// words of the glossary as Go types. The comment of a request's body names its route in
// parentheses.
//
// Field names are snake_case and stable: additions are free, every other change is listed in
// CHANGELOG. Sizes are bytes, times RFC 3339 in UTC, and the name of a duration has its unit.
package api
