// SPDX-License-Identifier: Apache-2.0

// Package medium has the kinds of storage that an image can be on, and their addresses.
package medium

import "strings"

// IsNetwork reports whether the path of a location is a network address.
func IsNetwork(path string) bool { return strings.HasPrefix(path, NBDScheme) || IsRemote(path) }

// IsNBD reports whether the path of a location is the address of an NBD export.
func IsNBD(path string) bool { return IsNetwork(path) && !IsRBD(path) }

// IsRemote reports whether the path of a location is an address that means the same on all hosts.
func IsRemote(path string) bool { return strings.HasPrefix(path, NBDTCPScheme) || IsRBD(path) }

// CheckAddress validates a path that IsNetwork.
func CheckAddress(path string) (err error) {
	if IsRBD(path) {
		_, err = ParseRBD(path)
	} else {
		_, err = ParseNBD(path)
	}
	return err
}

// AddressKind names the kind of object at a path that IsNetwork.
func AddressKind(path string) string {
	if IsRBD(path) {
		return "an RBD image"
	}
	return "an NBD export"
}
