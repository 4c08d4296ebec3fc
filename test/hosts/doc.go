// SPDX-License-Identifier: Apache-2.0

// Package hosts holds the end-to-end tests of several hosts: a registry over
// TLS, and hypervisors with a libvirtd and a volferryd each, which share a pool.
// They call the programs as operators do and see the public surface only.
package hosts
