// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
)

type unit struct {
	// name is the volume's name, from udev in /dev/disk/by-id.
	name string
	wwid string
	// mapUUID is the UUID of the volume's multipath map; "" if the volume is the disk itself.
	mapUUID string
}

// A volume's name begins with the kind of device. Then follows the WWID as udev and multipath
// write it: 3 and an NAA identifier, or 2 and an EUI-64.
const (
	mapPrefix  = "dm-uuid-"
	diskPrefix = "scsi-"
	uuidPrefix = "mpath-"
)

var (
	unitForm = regexp.MustCompile(`^(?:` + mapPrefix + `(` + uuidPrefix + `)|` + diskPrefix + `)([23])([0-9a-f]{16,32})$`)
	wwidKind = map[string]string{"2": "eui.", "3": "naa."}
)

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

func (u unit) mapName() string {
	return mapPrefix + uuidPrefix + strings.TrimPrefix(u.name, diskPrefix)
}
