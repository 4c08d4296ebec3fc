// SPDX-License-Identifier: Apache-2.0

// Package storage runs the tests of storage (TestStorage… of package e2e) in a virtual machine that
// has the kinds of devices that a host has: logical volumes, thick and thin, an iSCSI LUN by
// two paths, a namespace of NVMe over TCP. devices.sh makes them.
package storage
