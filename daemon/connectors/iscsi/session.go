// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
)

type session struct {
	id      string
	portals []target.Address
	wwids   []string
	disks   []disk
}

// disk is a logical unit through one path. Its wwid is "" if the unit does not identify itself.
type disk struct {
	name, wwid string
	// running is false for a path that is lost, or blocked while its state is unknown.
	running bool
}

var (
	sessionName = regexp.MustCompile(`^session([0-9]+)$`)
	diskName    = regexp.MustCompile(`^sd[a-z]+$`)
)

func readSessions(devices target.Devices, p place) (all []session, err error) {
	dirs, err := filepath.Glob(filepath.Join(devices.Sys, "class/iscsi_session/*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		name := sessionName.FindStringSubmatch(filepath.Base(dir))
		iqn, err := target.Attribute(dir, "targetname")
		if err != nil {
			return nil, err
		}
		if name == nil || iqn != p.iqn {
			continue
		}
		s := session{id: name[1]}
		if err := s.read(devices, filepath.Join(dir, "device")); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (s *session) read(devices target.Devices, dir string) error {
	connections, err := filepath.Glob(filepath.Join(dir, "connection*/iscsi_connection/*"))
	if err != nil {
		return err
	}
	for _, c := range connections {
		host, err := target.Attribute(c, "persistent_address")
		if err != nil {
			return err
		}
		port, err := target.Attribute(c, "persistent_port")
		if err != nil {
			return err
		}
		s.portals = append(s.portals, target.Address{Host: host, Port: port})
	}
	units, err := filepath.Glob(filepath.Join(dir, "target*/*:*:*:*"))
	if err != nil {
		return err
	}
	for _, u := range units {
		if err := s.add(devices, u); err != nil {
			return err
		}
	}
	return nil
}

// wwidOf returns the identity that the unit in this directory reports, "" for a unit without one
// in page 0x83 (ENXIO or EINVAL), which is not ours.
func wwidOf(dir string) (string, error) {
	wwid, err := target.Attribute(dir, "wwid")
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	return wwid, err
}

func (s *session) add(devices target.Devices, dir string) error {
	wwid, err := wwidOf(dir)
	if err != nil {
		return err
	}
	if wwid != "" {
		s.wwids = append(s.wwids, wwid)
	}
	disks, err := filepath.Glob(filepath.Join(dir, "block/*"))
	if err != nil {
		return err
	}
	for _, path := range disks {
		name := filepath.Base(path)
		if !diskName.MatchString(name) {
			continue
		}
		state, err := devices.Attribute(name, "device/state")
		if err != nil {
			return err
		}
		s.disks = append(s.disks, disk{name: name, wwid: wwid, running: state == "running"})
	}
	return nil
}

func reaches(sessions []session, portal target.Address) bool {
	return slices.ContainsFunc(sessions, func(s session) bool { return slices.Contains(s.portals, portal) })
}

func paths(sessions []session, u unit) (all []disk) {
	for _, s := range sessions {
		all = append(all, s.pathsTo(u)...)
	}
	return all
}

func (s session) pathsTo(u unit) (all []disk) {
	for _, d := range s.disks {
		if d.wwid == u.wwid {
			all = append(all, d)
		}
	}
	return all
}
