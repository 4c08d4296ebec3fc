// SPDX-License-Identifier: Apache-2.0

// Package routes declares every call of the API of daemon and registry, once. The servers bind
// handlers to the declarations, the clients send requests by them, and the OpenAPI documents are
// made from them. The package knows nothing of the handlers.
//
// To find the effect of a call, follow the uses of its variable: the handler in
// daemon/internal/adminapi or registry/internal/server, and the callers.
package routes
