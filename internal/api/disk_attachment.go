// SPDX-License-Identifier: Apache-2.0

package api

// DiskAttachment describes a volume as a disk of an instance. BootIndex is nil for a slot that
// takes no part in booting.
type DiskAttachment struct {
	Mode      Mode   `json:"mode"`
	Device    string `json:"device"`
	BootIndex *int   `json:"boot_index"`
}

// Mode is the access mode of an attachment.
type Mode string

// The modes of an attachment.
const (
	ModeRW Mode = "rw"
	ModeRO Mode = "ro"
)

// Valid reports whether m is one of the modes above.
func (m Mode) Valid() bool { return m == ModeRW || m == ModeRO }
