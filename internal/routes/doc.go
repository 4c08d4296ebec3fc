// SPDX-License-Identifier: Apache-2.0

// Package routes is the API: every call that the daemon or the registry answers is
// declared here, once. The servers bind handlers to the declarations, the clients send
// by them, and the OpenAPI documents are made of them. The package must not know how a
// call is answered.
//
// To find what a call does, follow the uses of its variable: the handler in
// daemon/internal/adminapi or registry/internal/server, and the callers.
package routes
