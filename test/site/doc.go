// SPDX-License-Identifier: Apache-2.0

// Package site runs Volferry's real programs on a lab: a registry, a daemon on
// the lab's libvirtd, and volferryctl as a user would call it. The end-to-end
// tests and the demo are written against it. It knows the public surface only:
// command lines, exit codes, JSON.
package site
