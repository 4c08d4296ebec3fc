// SPDX-License-Identifier: Apache-2.0

// Package httpjson is the HTTP server of both daemons: the table of routes, strict decoding of
// JSON, documents with a schema version, errors, and the peer of a Unix socket.
package httpjson
