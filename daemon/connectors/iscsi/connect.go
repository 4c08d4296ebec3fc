// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

// connect makes a session with each portal with which there is none, and waits for the volume. One
// path is enough.
func (i iscsi) connect(ctx context.Context, p place, marks *target.Marks, in connector.Request) (connector.Answer, error) {
	u, is := unitOf(in.Volume)
	if !is {
		return connector.Answer{}, absent(p, in.Volume)
	}
	if u.mapUUID == "" && len(p.portals) > 1 {
		return connector.Answer{}, connector.Errorf(connector.CodeInvalid, "target %s has several portals, so that the name of the volume is %s", p.iqn, u.mapName())
	}
	sessions, err := readSessions(i.Devices, p)
	if err != nil {
		return connector.Answer{}, err
	}
	if err := marks.Add(u.name, len(sessions) > 0); err != nil {
		return connector.Answer{}, err
	}
	var found *device
	err = i.reach(ctx, p, sessions)
	if err == nil {
		found, err = i.shows(ctx, p, u)
	}
	if err != nil {
		// A volume that could not be connected keeps no session.
		return connector.Answer{}, errors.Join(err, i.end(ctx, p, marks, u))
	}
	return i.volume(u, found), nil
}

// reach makes the sessions that are not there.
func (i iscsi) reach(ctx context.Context, p place, sessions []session) error {
	var failed []error
	begun := len(sessions)
	for _, portal := range p.portals {
		if reaches(sessions, portal) {
			continue
		}
		if err := i.login(ctx, p, portal); err != nil {
			failed = append(failed, err)
			continue
		}
		begun++
	}
	if begun == 0 {
		return connector.Errorf(connector.CodeUnavailable, "target %s is not reached: %v", p.iqn, errors.Join(failed...))
	}
	for _, err := range failed {
		note(err) // the volume has the other paths
	}
	return nil
}

const (
	// sessionExists is the exit status of iscsiadm where iscsid makes that session just now, for
	// somebody who was cut off.
	sessionExists = 15
	// loginWithin is how long that is waited for: a portal that is away must not keep the volume
	// from its other paths.
	loginWithin = 25 * time.Second
)

// login makes a session. A record of its portal that is there is the operator's, who may have a
// secret in it; a new one has what /etc/iscsi/iscsid.conf says.
func (i iscsi) login(ctx context.Context, p place, portal target.Address) error {
	if i.iscsiadm(ctx, p, portal) != nil {
		if err := i.newRecord(ctx, p, portal); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, loginWithin)
	defer cancel()
	err := i.iscsiadm(ctx, p, portal, "--login")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == sessionExists {
		return nil
	}
	return err
}

// newRecord makes the record of a portal. No session of ours begins with the host, and a portal
// that is away is not tried for long. Where there are other paths, one that is lost is given up soon.
func (i iscsi) newRecord(ctx context.Context, p place, portal target.Address) error {
	settings := [][2]string{{"node.startup", "manual"}, {"node.session.initial_login_retry_max", "1"}}
	if len(p.portals) > 1 {
		settings = append(settings, [2]string{"node.session.timeo.replacement_timeout", "15"})
	}
	err := i.iscsiadm(ctx, p, portal, "--op", "new")
	for _, s := range settings {
		if err == nil {
			err = i.iscsiadm(ctx, p, portal, "--op", "update", "--name", s[0], "--value", s[1])
		}
	}
	return err
}

// shows waits for a volume, for its name, and for its map to have all paths. Each session is
// asked once for what is new, each disk once whether it is what it was, and multipathd once for
// each path that it does not have.
func (i iscsi) shows(ctx context.Context, p place, u unit) (*device, error) {
	var found *device
	var sessions []session
	asked := map[string]bool{}
	once := func(what string, do func() error) {
		if asked[what] {
			return
		}
		asked[what] = true
		if err := do(); err != nil {
			note(err) // it may show by itself
		}
	}
	there, err := target.Until(ctx, i.Within, func() (is bool, err error) {
		if sessions, err = readSessions(i.Devices, p); err != nil {
			return false, err
		}
		for _, s := range sessions {
			for _, d := range s.pathsTo(u) {
				if d.running {
					once(d.name+" is the same", func() error { return i.write(i.attribute(d.name, "rescan"), "1") })
				}
			}
		}
		if sessions, err = readSessions(i.Devices, p); err != nil {
			return false, err
		}
		for _, s := range sessions {
			if len(s.pathsTo(u)) == 0 {
				once(s.id+" is scanned", func() error {
					_, err := i.run(ctx, "iscsiadm", "--mode", "session", "--sid", s.id, "--rescan")
					return err
				})
			}
		}
		if found, err = i.find(u, sessions); err != nil {
			return false, err
		}
		whole := true
		if u.mapUUID != "" {
			if whole, err = i.mapped(ctx, u, sessions, once); err != nil {
				return false, err
			}
		}
		return found != nil && whole && i.IsNamed(u.name, found.name), nil
	})
	if err != nil {
		return nil, err
	}
	return i.verdict(p, u, sessions, found, there)
}

// mapped says whether a map is on all paths of a unit that work. Those on which none is are given
// to multipathd, which may leave a unit alone that it has not had before.
func (i iscsi) mapped(ctx context.Context, u unit, sessions []session, once func(string, func() error)) (bool, error) {
	whole := true
	for _, d := range paths(sessions, u) {
		m, err := i.mapOf(d.name)
		if err != nil {
			return false, err
		}
		if m != "" || !d.running {
			continue
		}
		whole = false
		once(d.name+" is a path", func() error {
			_, err := i.run(ctx, "multipath", "-a", i.Path(d.name))
			_, addErr := i.run(ctx, multipathd, "add", "path", d.name)
			return errors.Join(err, addErr)
		})
	}
	return whole, nil
}

// verdict is what has come of the wait for a volume. A map that lacks a path is one.
func (i iscsi) verdict(p place, u unit, sessions []session, found *device, there bool) (*device, error) {
	all := paths(sessions, u)
	switch {
	case len(sessions) == 0:
		return nil, connector.Errorf(connector.CodeUnavailable, "target %s is not reached: no session was made in time", p.iqn)
	case len(all) == 0:
		return nil, absent(p, u.name)
	case found == nil:
		return nil, connector.Errorf(connector.CodeFailed, "multipathd has made no map of %s; does it run, and may it have that device?", i.Path(all[0].name))
	case !there && !i.IsNamed(u.name, found.name):
		return nil, connector.Errorf(connector.CodeFailed, "udev has given %s no name %s", found.name, filepath.Join(i.ByID(), u.name))
	}
	if u.mapUUID != "" {
		return found, nil
	}
	if m, err := i.mapOf(found.name); err != nil || m != "" || len(all) > 1 {
		return nil, errors.Join(err, connector.Errorf(connector.CodeInvalid, "multipath has %s, or there are several paths: the name of the volume is %s", found.name, u.mapName()))
	}
	return found, nil
}
