// SPDX-License-Identifier: Apache-2.0

// Package web serves a page that an operator looks at in a browser on the same machine:
// what a daemon or a registry knows, as it changes. It lets only reads through, of a list
// of routes, and only to the browser that has shown the one-time token. It must not know
// flags or commands.
package web
