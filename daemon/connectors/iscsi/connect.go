// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

// connect makes the missing sessions with the portals, and waits for the volume. One path is
// enough.
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
	// sessionExists is iscsiadm's exit status if iscsid is making the session for an interrupted
	// caller.
	sessionExists = 15
	// noRecord is the exit status of iscsiadm if a portal has no record.
	noRecord = 21
	// loginWithin bounds the wait for such a session: a portal that does not answer must not keep
	// the volume from its other paths.
	loginWithin = 25 * time.Second
)

// login makes a session. An existing record of its portal is the operator's; a new one has the
// settings of /etc/iscsi/iscsid.conf.
func (i iscsi) login(ctx context.Context, p place, portal target.Address) error {
	err := i.iscsiadm(ctx, p, portal)
	if exitsWith(err, noRecord) {
		err = i.newRecord(ctx, p, portal)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, loginWithin)
	defer cancel()
	if err := i.iscsiadm(ctx, p, portal, "--login"); !exitsWith(err, sessionExists) {
		return err
	}
	return nil
}

func exitsWith(err error, status int) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == status
}

// newRecord makes the record of a portal. Our sessions do not begin at boot, and a portal that
// does not answer is tried only briefly. If there are other paths, a lost one is given up soon.
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

// wait is the state of a wait for a volume: the last observation, and the rescans and other
// requests, each made only once.
type wait struct {
	sessions []session
	found    *device
	asked    map[string]bool
	failed   []error
}

func (w *wait) once(what string, do func() error) {
	if w.asked[what] {
		return
	}
	w.asked[what] = true
	if err := do(); err != nil {
		w.failed = append(w.failed, err)
	}
}

func (w *wait) why() string {
	if len(w.failed) == 0 {
		return ""
	}
	return ": " + errors.Join(w.failed...).Error()
}

func (i iscsi) shows(ctx context.Context, p place, u unit) (*device, error) {
	w := &wait{asked: map[string]bool{}}
	there, err := target.Until(ctx, i.Within, func() (bool, error) { return i.look(ctx, p, u, w) })
	if err != nil {
		return nil, err
	}
	return i.verdict(p, u, w, there)
}

// look reports whether the link of a volume in /dev/disk/by-id leads to its device and, for a
// multipath volume, whether a map has all working paths. In one wait it rescans each session once
// for new units, and each disk once for changes.
func (i iscsi) look(ctx context.Context, p place, u unit, w *wait) (whole bool, err error) {
	if w.sessions, err = readSessions(i.Devices, p); err != nil {
		return false, err
	}
	for _, d := range paths(w.sessions, u) {
		if d.running {
			w.once(d.name+" is the same", func() error { return i.write(i.attribute(d.name, "rescan"), "1") })
		}
	}
	if w.sessions, err = readSessions(i.Devices, p); err != nil {
		return false, err
	}
	if err := i.scan(ctx, p, u, w); err != nil {
		return false, err
	}
	if w.found, err = i.find(u, w.sessions); err != nil {
		return false, err
	}
	whole = true
	if u.mapUUID != "" {
		whole, err = i.mapped(ctx, u, w)
	}
	return whole && err == nil && w.found != nil && i.IsNamed(u.name, w.found.name), err
}

// scan rescans the sessions that do not show a unit. If no session shows the unit then, it does
// not exist.
func (i iscsi) scan(ctx context.Context, p place, u unit, w *wait) error {
	scanned := false
	for _, s := range w.sessions {
		if !slices.Contains(s.wwids, u.wwid) {
			w.once(s.id+" is scanned", func() error {
				_, err := i.run(ctx, "iscsiadm", "--mode", "session", "--sid", s.id, "--rescan")
				scanned = scanned || err == nil
				return err
			})
		}
	}
	if !scanned {
		return nil
	}
	var err error
	if w.sessions, err = readSessions(i.Devices, p); err != nil {
		return err
	}
	if !slices.ContainsFunc(w.sessions, func(s session) bool { return slices.Contains(s.wwids, u.wwid) }) {
		return absent(p, u.name)
	}
	return nil
}

// mapped reports whether all working paths of a unit are in a multipath map. It gives multipathd
// the paths without a map once udev knows them: multipathd asks udev about paths, and may ignore a
// unit that is new to udev.
func (i iscsi) mapped(ctx context.Context, u unit, w *wait) (bool, error) {
	whole := true
	for _, d := range paths(w.sessions, u) {
		m, err := i.mapOf(d.name)
		if err != nil {
			return false, err
		}
		if m != "" || !d.running {
			continue
		}
		whole = false
		known, err := i.IsKnown(d.name)
		if err != nil {
			return false, err
		}
		if !known {
			continue
		}
		w.once(d.name+" is a path", func() error {
			_, err := i.run(ctx, "multipath", "-a", i.Path(d.name))
			_, addErr := i.run(ctx, multipathd, "add", "path", d.name)
			return errors.Join(err, addErr)
		})
	}
	return whole, nil
}

// verdict returns the result of the wait for a volume. A multipath map that lacks a path is a
// success.
func (i iscsi) verdict(p place, u unit, w *wait, there bool) (*device, error) {
	all, found := paths(w.sessions, u), w.found
	switch {
	case len(w.sessions) == 0:
		return nil, connector.Errorf(connector.CodeUnavailable, "target %s is not reached: no session was made in time", p.iqn)
	case len(all) == 0:
		return nil, connector.Errorf(connector.CodeUnavailable, "target %s has not said in time whether it has %s%s", p.iqn, u.name, w.why())
	case found == nil:
		return nil, connector.Errorf(connector.CodeFailed, "multipathd has made no map of %s; does it run, and may it have that device?%s", i.Path(all[0].name), w.why())
	case !there && !i.IsNamed(u.name, found.name):
		return nil, connector.Errorf(connector.CodeFailed, "udev has given %s no name %s", found.name, filepath.Join(i.ByID(), u.name))
	case u.mapUUID != "":
		return found, nil
	}
	if m, err := i.mapOf(found.name); err != nil || m != "" || len(all) > 1 {
		return nil, errors.Join(err, connector.Errorf(connector.CodeInvalid, "multipath has %s, or there are several paths: the name of the volume is %s", found.name, u.mapName()))
	}
	return found, nil
}
