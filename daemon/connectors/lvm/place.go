// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"regexp"
	"slices"

	"github.com/volferry/volferry/daemon/internal/connector"
)

const (
	optionGroup = "vg"
	optionUUID  = "vg_uuid"
	optionPool  = "thin_pool"
)

const opTag = "volferry.op="

type lvm struct {
	run func(ctx context.Context, args ...string) ([]byte, error)
}

// place is a request's thin pool. The UUID identifies the group: a guest can write any group name
// on its disk.
type place struct{ group, uuid, pool string }

var name = regexp.MustCompile(`^[A-Za-z0-9_+.][A-Za-z0-9_+.-]*$`)

func placeOf(options map[string]string) (place, error) {
	p := place{options[optionGroup], options[optionUUID], options[optionPool]}
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if key != optionGroup && key != optionUUID && key != optionPool {
			return p, connector.Errorf(connector.CodeInvalid, "there is no option %.40q; a pool has vg, vg_uuid and thin_pool", key)
		}
	}
	for _, key := range []string{optionGroup, optionPool} {
		if value := options[key]; !name.MatchString(value) || value == "." || value == ".." {
			return p, connector.Errorf(connector.CodeInvalid, "%s is %.140q, which is no name that LVM has", key, value)
		}
	}
	return p, nil
}

func (p place) path(volume string) string { return p.directory() + "/" + volume }

func (p place) directory() string { return "/dev/" + p.group }
