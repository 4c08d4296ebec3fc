// SPDX-License-Identifier: Apache-2.0

// Package web serves a page for an operator's browser on the same machine: the live state of a
// daemon or a registry. It forwards only reads of listed routes, and only for the browser with the
// one-time token.
package web
