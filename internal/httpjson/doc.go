// SPDX-License-Identifier: Apache-2.0

// Package httpjson is how both daemons speak HTTP: one table of routes, strict
// JSON in, documents with a schema version out, one shape for every error, and
// who is at the other end of a Unix socket. It knows nothing of volumes or
// guests, and its handlers never see an HTTP status for an error.
package httpjson
