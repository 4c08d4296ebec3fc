// SPDX-License-Identifier: Apache-2.0

// Package site runs Volferry's real programs on labs: a registry, daemons each on
// a libvirtd of its own, and volferryctl as a user would call it. The end-to-end
// tests and the demo are written against it. It knows the public surface only:
// command lines, exit codes, JSON.
package site
