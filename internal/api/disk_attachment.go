// SPDX-License-Identifier: Apache-2.0

package api

// DiskAttachment says how a volume is attached as a disk of an instance. BootIndex is nil
// for a slot that takes no part in booting.
type DiskAttachment struct {
	Mode      Mode   `json:"mode"`
	Device    string `json:"device"`
	BootIndex *int   `json:"boot_index"`
}

// Mode is how an attachment may use its volume.
type Mode string

// The modes of an attachment.
const (
	ModeRW Mode = "rw"
	ModeRO Mode = "ro"
)

// Valid reports whether m is one of the modes above.
func (m Mode) Valid() bool { return m == ModeRW || m == ModeRO }
