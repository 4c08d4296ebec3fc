// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/connector"
)

type group struct {
	name, uuid string
	devices    []string
}

// groups lists the volume groups in the labels of all devices. Guests may have written some
// labels.
func (l lvm) groups(ctx context.Context) (all []group, err error) {
	text, err := l.run(ctx, "pvs", "--reportformat", "json", "--options", "pv_name,vg_name,vg_uuid")
	if err != nil {
		return nil, connector.Errorf(connector.CodeUnavailable, "physical volumes cannot be read: %v", err)
	}
	var doc struct {
		Report []struct {
			PV []struct {
				Device string `json:"pv_name"`
				Name   string `json:"vg_name"`
				UUID   string `json:"vg_uuid"`
			} `json:"pv"`
		} `json:"report"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, connector.Errorf(connector.CodeFailed, "pvs says what cannot be read: %v", err)
	}
	at := map[string]int{}
	for _, part := range doc.Report {
		for _, pv := range part.PV {
			if pv.UUID == "" || !strings.HasPrefix(pv.Device, "/dev/") {
				continue // it is in no group, or its device is missing
			}
			i, known := at[pv.UUID]
			if !known {
				i = len(all)
				at[pv.UUID] = i
				all = append(all, group{name: pv.Name, uuid: pv.UUID})
			}
			all[i].devices = append(all[i].devices, pv.Device)
		}
	}
	return all, nil
}

// groupOf returns the volume group of a place. The warning lists other volume groups with the same
// name.
func (l lvm) groupOf(ctx context.Context, p place) (own group, warning string, err error) {
	all, err := l.groups(ctx)
	if err != nil {
		return own, "", err
	}
	var others []string
	for _, g := range all {
		switch {
		case g.uuid == p.uuid:
			own = g
		case g.name == p.group:
			others = append(others, fmt.Sprintf("%s on %s", g.uuid, strings.Join(g.devices, ", ")))
		}
	}
	named := strings.Join(others, "; ")
	switch {
	case p.uuid == "" && named == "":
		return own, "", connector.Errorf(connector.CodeInvalid, "vg_uuid is missing, and there is no volume group %s", p.group)
	case p.uuid == "":
		return own, "", connector.Errorf(connector.CodeInvalid, "vg_uuid is missing; volume group %s is %s: write the UUID of yours (a guest can write this name on its own disk)", p.group, named)
	case own.uuid == "" && named == "":
		return own, "", connector.Errorf(connector.CodeUnavailable, "volume group %s (%s) is not there; its disks may be away", p.group, p.uuid)
	case own.uuid == "":
		return own, "", connector.Errorf(connector.CodeUnavailable, "volume group %s (%s) is not there; its disks may be away. Another group has its name, and is not used: %s", p.group, p.uuid, named)
	case own.name != p.group:
		return own, "", connector.Errorf(connector.CodeInvalid, "volume group %s has the name %s, and not %s", p.uuid, own.name, p.group)
	case named != "":
		warning = fmt.Sprintf("another volume group has the name %s, and is not used: %s", p.group, named)
	}
	return own, warning, nil
}

func (l lvm) within(ctx context.Context, g group, command string, args ...string) ([]byte, error) {
	return l.run(ctx, append([]string{command, "--devices", strings.Join(g.devices, ",")}, args...)...)
}
