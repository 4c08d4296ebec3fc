// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

type iscsi struct {
	target.Devices
	run        func(ctx context.Context, args ...string) ([]byte, error)
	runHolding func(ctx context.Context, lock *os.File, args ...string) ([]byte, error)
	installed  func(program, debian string) error
	canCopy    func() bool
	write      func(path, text string) error
	flush      func(path string) error
	state      string
}

// multipathd is the daemon that keeps each path open to check it.
const multipathd = "multipathd"

func writeAttribute(path, text string) error { return os.WriteFile(path, []byte(text), 0) }

func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return &os.PathError{Op: "flush", Path: path, Err: err}
	}
	return nil
}

func note(err error) { _, _ = os.Stderr.WriteString("iscsi: " + err.Error() + "\n") }

// inspect describes a volume or the target. It runs no command.
func (i iscsi) inspect(p place, in connector.Request) (connector.Answer, error) {
	if in.Volume == "" {
		if err := i.canConnect(p); err != nil {
			return connector.Answer{}, err
		}
		verbs := []string{connector.VerbInspect, connector.VerbConnect, connector.VerbDisconnect}
		if i.canCopy() {
			verbs = append(verbs, connector.VerbCopy)
		}
		return connector.Answer{Pool: &connector.Pool{Directory: i.ByID(), GranularityBytes: target.SectorBytes, Verbs: verbs}}, nil
	}
	u, is := unitOf(in.Volume)
	if !is {
		return connector.Answer{}, absent(p, in.Volume)
	}
	sessions, err := readSessions(i.Devices, p)
	if err != nil {
		return connector.Answer{}, err
	}
	found, err := i.find(u, sessions)
	if err != nil {
		return connector.Answer{}, err
	}
	if found == nil {
		// A session does not show units with removed devices.
		return connector.Answer{}, connector.Errorf(connector.CodeNotConnected, "%s of target %s is not connected", u.name, p.iqn)
	}
	return i.volume(u, found), nil
}

func (i iscsi) canConnect(p place) error {
	if err := i.installed("iscsiadm", "open-iscsi"); err != nil || len(p.portals) == 1 {
		return err
	}
	for _, program := range []string{"multipath", multipathd} {
		if err := i.installed(program, "multipath-tools"); err != nil {
			return err
		}
	}
	return nil
}

func absent(p place, volume string) error {
	return connector.Errorf(connector.CodeNotFound, "target %s shows no unit %s", p.iqn, volume)
}

type device struct {
	name, identity string
	sizeBytes      int64
}

func (i iscsi) volume(u unit, found *device) connector.Answer {
	return connector.Answer{Volume: &connector.Volume{Name: u.name, Path: filepath.Join(i.ByID(), u.name), SizeBytes: found.sizeBytes, Identity: found.identity}}
}

func (i iscsi) find(u unit, sessions []session) (*device, error) {
	all := paths(sessions, u)
	var found *device
	switch {
	case u.mapUUID != "":
		m, err := i.mapOn(u, all)
		if err != nil || m == "" {
			return nil, err
		}
		if err := i.pure(u, m); err != nil {
			return nil, err
		}
		found = &device{name: m, identity: u.mapUUID}
	case len(all) > 0:
		found = &device{name: all[0].name, identity: u.wwid}
	default:
		return nil, nil
	}
	var err error
	found.sizeBytes, err = i.SizeBytes(found.name)
	if found.sizeBytes == 0 {
		return nil, err
	}
	return found, err
}

func (i iscsi) mapOn(u unit, paths []disk) (string, error) {
	for _, d := range paths {
		m, err := i.mapOf(d.name)
		if err != nil {
			return "", err
		}
		if m != "" {
			uuid, err := i.Attribute(m, "dm/uuid")
			if err != nil || uuid == u.mapUUID {
				return m, err
			}
		}
	}
	return "", nil
}

// pure refuses a multipath map with a path to another unit: the target has given the number (LUN)
// to another unit, and multipathd has not noticed. Writes to the map would go to both.
func (i iscsi) pure(u unit, m string) error {
	disks, err := i.Slaves(m)
	for _, d := range disks {
		wwid, readErr := i.Attribute(d, "device/wwid")
		if wwid != "" && wwid != u.wwid {
			return connector.Errorf(connector.CodeChanged, "the map %s of %s has a path, %s, to another unit (%.80s): take it out (multipathd del path %s) before anybody writes to the map", m, u.name, d, wwid, d)
		}
		err = errors.Join(err, readErr)
	}
	return err
}

func (i iscsi) mapOf(disk string) (string, error) {
	holders, err := i.Holders(disk)
	if err != nil {
		return "", err
	}
	for _, h := range holders {
		uuid, err := i.Attribute(h, "dm/uuid")
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(uuid, uuidPrefix) {
			return h, nil
		}
	}
	return "", nil
}

func (i iscsi) attribute(disk, name string) string {
	return filepath.Join(i.Sys, "class/block", disk, "device", name)
}

func (i iscsi) iscsiadm(ctx context.Context, p place, portal target.Address, args ...string) error {
	_, err := i.run(ctx, append([]string{"iscsiadm", "--mode", "node", "--targetname", p.iqn, "--portal", portal.String()}, args...)...)
	if err != nil {
		return fmt.Errorf("portal %s: %w", portal, err)
	}
	return nil
}
