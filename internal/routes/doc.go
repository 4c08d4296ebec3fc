// SPDX-License-Identifier: Apache-2.0

// Package routes declares every call of the API of daemon and registry, once: for the handlers of
// the servers, the requests of the clients, and the OpenAPI documents. To find the effect of a
// call, follow the uses of its variable.
package routes
