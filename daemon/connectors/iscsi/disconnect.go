// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

func (i iscsi) disconnect(ctx context.Context, p place, marks *target.Marks, in connector.Request) error {
	u, is := unitOf(in.Volume)
	if !is {
		return nil // it was never connected
	}
	sessions, err := readSessions(i.Devices, p)
	if err != nil {
		return err
	}
	found, err := i.find(u, sessions)
	if err != nil {
		return err
	}
	if found != nil && found.identity != in.Identity {
		return connector.Errorf(connector.CodeChanged, "%s is %s by now, and not %.200s", u.name, found.identity, in.Identity)
	}
	return i.end(ctx, p, marks, u)
}

// end removes the devices of a volume, then its mark (target.Marks). Other programs' devices stay.
func (i iscsi) end(ctx context.Context, p place, marks *target.Marks, u unit) error {
	holds, last, err := marks.Holds(u.name)
	if err == nil && holds {
		err = i.unplug(ctx, p, u, last)
	}
	if err != nil {
		return err
	}
	return marks.Remove(u.name)
}

// unplug removes the devices of a volume; for the last volume, all devices of the sessions and
// then the sessions. It removes nothing while one of the devices is in use.
func (i iscsi) unplug(ctx context.Context, p place, u unit, last bool) error {
	sessions, err := readSessions(i.Devices, p)
	if err != nil {
		return err
	}
	var disks []string
	for _, s := range sessions {
		for _, d := range s.disks {
			if last || d.wwid == u.wwid {
				disks = append(disks, d.name)
			}
		}
	}
	all, err := i.stack(disks)
	if err != nil {
		return err
	}
	if err := i.NotUsed(ctx, all...); err != nil {
		return err
	}
	kept, err := i.removeMaps(ctx, all)
	if err != nil {
		return err
	}
	if last {
		i.logout(ctx, sessions)
	} else if err := i.removeDisks(disks); err != nil {
		return err
	}
	return i.gone(ctx, p, u, last, slices.Contains(kept, u.mapUUID))
}

// partForm is the UUID of a map that is a partition of a multipath map.
var partForm = regexp.MustCompile(`^part[0-9]+-` + uuidPrefix)

func (i iscsi) stack(devices []string) (all []string, err error) {
	for _, d := range devices {
		if !slices.Contains(all, d) {
			all = append(all, d)
		}
		holders, err := i.Holders(d)
		if err != nil {
			return nil, err
		}
		holders = slices.DeleteFunc(holders, func(h string) bool {
			uuid, attributeErr := i.Attribute(h, "dm/uuid")
			err = errors.Join(err, attributeErr)
			return !strings.HasPrefix(uuid, uuidPrefix) && !partForm.MatchString(uuid)
		})
		if err != nil {
			return nil, err
		}
		above, err := i.stack(holders)
		if err != nil {
			return nil, err
		}
		for _, a := range above {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all, nil
}

// removeMaps removes the multipath maps among devices, with their partitions. If a map also has
// paths to another target of the same storage, it only loses our paths. It returns the UUIDs of
// such maps.
func (i iscsi) removeMaps(ctx context.Context, devices []string) (kept []string, err error) {
	for _, d := range devices {
		uuid, err := i.Attribute(d, "dm/uuid")
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(uuid, uuidPrefix) {
			continue
		}
		ours, others, err := i.pathsOf(d, devices)
		if err != nil {
			return nil, err
		}
		if others {
			kept = append(kept, uuid)
			err = i.removePaths(ctx, ours)
		} else {
			err = i.removeMap(ctx, d)
		}
		if err != nil {
			return nil, err
		}
	}
	return kept, nil
}

func (i iscsi) pathsOf(m string, devices []string) (ours []string, others bool, err error) {
	disks, err := i.Slaves(m)
	for _, d := range disks {
		if slices.Contains(devices, d) {
			ours = append(ours, d)
			continue
		}
		number, readErr := i.Attribute(d, "dev")
		others = others || number != ""
		err = errors.Join(err, readErr)
	}
	return ours, others, err
}

func (i iscsi) removeMap(ctx context.Context, m string) error {
	name, err := i.Attribute(m, "dm/name")
	if err != nil {
		return err
	}
	err = i.flush(i.Path(m))
	if err == nil {
		_, err = i.run(ctx, "multipath", "-f", name)
	}
	if left, readErr := i.Attribute(m, "dm/uuid"); left == "" && readErr == nil {
		return nil
	}
	return err
}

func (i iscsi) removePaths(ctx context.Context, disks []string) error {
	for _, d := range disks {
		if _, err := i.run(ctx, multipathd, "del", "path", d); err != nil {
			return err
		}
	}
	return nil
}

func (i iscsi) removeDisks(disks []string) error {
	for _, d := range disks {
		if err := i.flush(i.Path(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			note(err) // a lost path has nothing to write, because no process uses it
		}
		if err := i.write(i.attribute(d, "delete"), "1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// logout ends the sessions. The caller checks whether they have ended.
func (i iscsi) logout(ctx context.Context, sessions []session) {
	for _, s := range sessions {
		if _, err := i.run(ctx, "iscsiadm", "--mode", "session", "--sid", s.id, "--logout"); err != nil {
			note(err)
		}
	}
}

// gone waits until neither the kernel nor udev has the removed devices. A kept map's name may
// stay.
func (i iscsi) gone(ctx context.Context, p place, u unit, last, kept bool) error {
	gone, err := target.Until(ctx, i.Within, func() (bool, error) {
		sessions, err := readSessions(i.Devices, p)
		left := len(paths(sessions, u)) > 0 || last && len(sessions) > 0 || !kept && i.HasName(u.name)
		return !left, err
	})
	if err == nil && !gone {
		err = connector.Errorf(connector.CodeFailed, "%s of target %s is disconnected, and something of it is left", u.name, p.iqn)
	}
	return err
}
