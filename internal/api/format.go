// SPDX-License-Identifier: Apache-2.0

package api

// Format is the format of an image. It is stored and never probed.
type Format string

// The formats of a location.
const (
	FormatRaw   Format = "raw"
	FormatQcow2 Format = "qcow2"
)

// Valid reports whether f is one of the formats above.
func (f Format) Valid() bool { return f == FormatRaw || f == FormatQcow2 }
