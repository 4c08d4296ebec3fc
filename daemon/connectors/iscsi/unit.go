// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
)

// unit is a logical unit, as the name of its volume says it.
type unit struct {
	// name is that of the volume, which udev gives the device in /dev/disk/by-id.
	name string
	// wwid is what the unit says of itself, in the kernel's words.
	wwid string
	// mapUUID is that of the map of multipath that is the volume; "" if it is the disk itself.
	mapUUID string
}

// The names begin with what the device is. Behind it is the WWID in udev's and multipath's words:
// 3 and an NAA identifier, or 2 and an EUI-64.
const (
	mapPrefix  = "dm-uuid-"
	diskPrefix = "scsi-"
	uuidPrefix = "mpath-"
)

var (
	unitForm = regexp.MustCompile(`^(?:` + mapPrefix + `(` + uuidPrefix + `)|` + diskPrefix + `)([23])([0-9a-f]{16,32})$`)
	wwidKind = map[string]string{"2": "eui.", "3": "naa."}
)

// unitOf is the logical unit of a volume. A name that is none belongs to no target.
func unitOf(volume string) (unit, bool) {
	parts := unitForm.FindStringSubmatch(volume)
	if parts == nil {
		return unit{}, false
	}
	u := unit{name: volume, wwid: wwidKind[parts[2]] + parts[3]}
	if parts[1] != "" {
		u.mapUUID = strings.TrimPrefix(volume, mapPrefix)
	}
	return u, true
}

// mapName is the name that the volume has as a map.
func (u unit) mapName() string {
	return mapPrefix + uuidPrefix + strings.TrimPrefix(u.name, diskPrefix)
}
