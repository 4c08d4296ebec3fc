// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/volferry/volferry/internal/api"
)

// Bounds of the stored definitions of a shelved instance and its disks, in bytes. All of them must
// fit into one request.
const (
	// MaxDomain bounds the domain XML.
	MaxDomain = 512 << 10
	// MaxNVRAM bounds the compressed UEFI variables.
	MaxNVRAM = 256 << 10
	// MaxSlotDefinition bounds the definition of a disk, which usually has a few hundred bytes.
	MaxSlotDefinition = 64 << 10
)

// InstanceDefinition checks an instance's definition from a host.
func InstanceDefinition(d api.InstanceDefinition) error {
	if err := checkDocument("definition of the domain", d.Domain, MaxDomain); err != nil {
		return err
	}
	if len(d.NVRAM) > MaxNVRAM {
		return Invalid("the NVRAM has %d bytes, and at most %d are kept", len(d.NVRAM), MaxNVRAM)
	}
	for device, disk := range d.Disks {
		if err := cmp.Or(Device(device), SlotDefinition(device, disk)); err != nil {
			return err
		}
	}
	return nil
}

// SlotDefinition checks the definition of a disk. The error names the disk's device.
func SlotDefinition(device string, d api.SlotDefinition) error {
	return checkDocument("definition of the disk "+device, d.Disk, MaxSlotDefinition)
}

func checkDocument(what, text string, most int) error {
	switch {
	case text == "":
		return Invalid("the %s is missing", what)
	case len(text) > most:
		return Invalid("the %s has %d bytes, and at most %d are kept", what, len(text), most)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return Invalid("the %s is not text in UTF-8", what)
	}
	return nil
}
