// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

const (
	// showsWithin is how long a namespace, and its name in /dev, has to show once its subsystem is
	// connected, and to go with it.
	showsWithin = 10 * time.Second
	// poll is how often that is looked at.
	poll = 20 * time.Millisecond
)

// nvme does the verbs by commands of nvme-cli, and by what the kernel says.
type nvme struct {
	// run runs one of them and returns its stdout.
	run func(ctx context.Context, args ...string) ([]byte, error)
	// sys, dev and state are the directories of the kernel's, of udev's and of the marks.
	sys, dev, state string
	// opener is a process that has one of the devices open, 0 if none has.
	opener func(devices []string) (pid int, err error)
	wait   time.Duration
}

// handle does one verb.
func (n nvme) handle(ctx context.Context, in connector.Request) (connector.Answer, error) {
	p, err := placeOf(in.Options)
	if err != nil {
		return connector.Answer{}, err
	}
	switch in.Verb {
	case connector.VerbInspect:
		return n.inspect(p, in)
	case connector.VerbConnect, connector.VerbDisconnect:
		marks, err := target.Take(n.state, "nvme", p.nqn)
		if err != nil {
			return connector.Answer{}, err
		}
		defer marks.Release()
		if in.Verb == connector.VerbConnect {
			return n.connect(ctx, p, marks, in)
		}
		return connector.Answer{}, n.disconnect(ctx, p, marks, in)
	}
	return connector.Answer{}, connector.Errorf(connector.CodeUnsupported, "a subsystem of NVMe has the volumes that it has: there is no verb %q here", in.Verb)
}

func (n nvme) read(p place) (subsystem, error) { return readSubsystem(n.sys, p) }

func (n nvme) directory() string { return filepath.Join(n.dev, "disk/by-id") }

func (n nvme) inspect(p place, in connector.Request) (connector.Answer, error) {
	if in.Volume == "" {
		return connector.Answer{Pool: &connector.Pool{
			Directory: n.directory(), GranularityBytes: sectorBytes,
			Verbs: []string{connector.VerbInspect, connector.VerbConnect, connector.VerbDisconnect},
		}}, nil
	}
	if !strings.HasPrefix(in.Volume, namePrefix) {
		return connector.Answer{}, n.absent(p, in.Volume)
	}
	s, err := n.read(p)
	if err != nil {
		return connector.Answer{}, err
	}
	found := s.find(in.Volume)
	switch {
	case found != nil:
		return n.volume(in.Volume, found), nil
	case len(s.controllers) == 0:
		return connector.Answer{}, connector.Errorf(connector.CodeNotConnected, "subsystem %s is not connected", p.nqn)
	}
	return connector.Answer{}, n.absent(p, in.Volume)
}

func (n nvme) volume(name string, found *namespace) connector.Answer {
	return connector.Answer{Volume: &connector.Volume{Name: name, Path: filepath.Join(n.directory(), name), SizeBytes: found.sizeBytes, Identity: found.wwid}}
}

func (nvme) absent(p place, volume string) error {
	return connector.Errorf(connector.CodeNotFound, "subsystem %s shows no namespace %s", p.nqn, volume)
}

// connect connects the subsystem by each address by which it is not, and waits for the namespace.
// One path is enough.
func (n nvme) connect(ctx context.Context, p place, marks *target.Marks, in connector.Request) (connector.Answer, error) {
	if !strings.HasPrefix(in.Volume, namePrefix) {
		return connector.Answer{}, n.absent(p, in.Volume)
	}
	s, err := n.read(p)
	if err != nil {
		return connector.Answer{}, err
	}
	if err := marks.Add(in.Volume, len(s.controllers) > 0); err != nil {
		return connector.Answer{}, err
	}
	err = n.reach(ctx, p, s)
	if err == nil {
		var found *namespace
		if found, err = n.shows(ctx, p, in.Volume); err == nil {
			return n.volume(in.Volume, found), nil
		}
	}
	// A volume that could not be connected keeps no session.
	return connector.Answer{}, errors.Join(err, n.end(ctx, p, marks, in.Volume))
}

// reach makes the paths that are not there.
func (n nvme) reach(ctx context.Context, p place, s subsystem) error {
	var failed []error
	for _, a := range p.addresses {
		if s.reaches(a) {
			continue
		}
		if _, err := n.run(ctx, "nvme", "connect", "--transport", "tcp", "--traddr", a.host, "--trsvcid", a.port, "--nqn", p.nqn); err != nil {
			failed = append(failed, err)
		}
	}
	now, err := n.read(p)
	if err == nil && len(now.controllers) == 0 {
		return connector.Errorf(connector.CodeUnavailable, "subsystem %s is not reached: %v", p.nqn, errors.Join(failed...))
	}
	for _, err := range failed {
		_, _ = os.Stderr.WriteString("nvme: " + err.Error() + "\n") // the volume has the other paths
	}
	return err
}

// shows waits for a namespace and for its name. Its subsystem is asked once for what is new.
func (n nvme) shows(ctx context.Context, p place, volume string) (*namespace, error) {
	asked := false
	over := time.Now().Add(n.wait)
	for {
		s, err := n.read(p)
		if err != nil {
			return nil, err
		}
		found := s.find(volume)
		if found != nil && n.names(volume, found.disk) {
			return found, nil
		}
		if found == nil && !asked {
			asked = true
			for _, c := range s.controllers {
				if _, err := n.run(ctx, "nvme", "ns-rescan", filepath.Join(n.dev, c.name)); err != nil {
					_, _ = os.Stderr.WriteString("nvme: " + err.Error() + "\n") // it may show by itself
				}
			}
		}
		if time.Now().After(over) {
			if found != nil {
				return nil, connector.Errorf(connector.CodeFailed, "udev has given %s no name %s", found.disk, filepath.Join(n.directory(), volume))
			}
			return nil, n.absent(p, volume)
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// names says whether the name of a volume is that of this disk.
func (n nvme) names(volume, disk string) bool {
	to, err := filepath.EvalSymlinks(filepath.Join(n.directory(), volume))
	return err == nil && to == filepath.Join(n.dev, disk)
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(poll):
		return nil
	}
}

// disconnect ends what a volume needs of the session, and the session with the last volume.
func (n nvme) disconnect(ctx context.Context, p place, marks *target.Marks, in connector.Request) error {
	s, err := n.read(p)
	if err != nil {
		return err
	}
	if found := s.find(in.Volume); found != nil {
		if found.wwid != in.Identity {
			return connector.Errorf(connector.CodeChanged, "%s is %s by now, and not %.200s", in.Volume, found.wwid, in.Identity)
		}
		if err := n.notOpen(ctx, *found); err != nil {
			return err
		}
	}
	return n.end(ctx, p, marks, in.Volume)
}

// notOpen refuses disks that somebody has. It waits a little for udev, which reads what others
// have closed.
func (n nvme) notOpen(ctx context.Context, disks ...namespace) error {
	over := time.Now().Add(n.wait / 5)
	for {
		err := n.open(disks)
		if err == nil || connector.CodeOf(err) != connector.CodeInUse || time.Now().After(over) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func (n nvme) open(disks []namespace) error {
	for _, d := range disks {
		path := filepath.Join(n.dev, d.disk)
		pid, err := n.opener([]string{path})
		if err != nil {
			return connector.Errorf(connector.CodeUnavailable, "nobody can tell whether %s is open: %v", path, err)
		}
		if pid != 0 {
			return connector.Errorf(connector.CodeInUse, "%s is open: process %d has it", path, pid)
		}
		holders, err := os.ReadDir(filepath.Join(n.sys, "class/block", d.disk, "holders"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(holders) > 0 {
			return connector.Errorf(connector.CodeInUse, "%s is in use: device %s is on it", path, holders[0].Name())
		}
	}
	return nil
}

// end takes the mark of a volume, and ends the session with the last one, unless somebody
// has another disk of it open, which was not connected here.
func (n nvme) end(ctx context.Context, p place, marks *target.Marks, volume string) error {
	last, err := marks.Last(volume)
	if err != nil || !last {
		return err
	}
	s, err := n.read(p)
	if err != nil {
		return err
	}
	if err := n.notOpen(ctx, s.namespaces...); err != nil {
		return err
	}
	if len(s.controllers) > 0 {
		if _, err := n.run(ctx, "nvme", "disconnect", "--nqn", p.nqn); err != nil {
			return err
		}
	}
	if err := n.gone(ctx, p, s); err != nil {
		return err
	}
	return marks.Remove(volume)
}

// gone waits until neither the kernel nor udev has a disk of a session that was ended.
func (n nvme) gone(ctx context.Context, p place, was subsystem) error {
	over := time.Now().Add(n.wait)
	for {
		now, err := n.read(p)
		if err != nil {
			return err
		}
		left := len(now.controllers) > 0 || len(now.namespaces) > 0
		for _, d := range was.namespaces {
			_, err := os.Lstat(filepath.Join(n.directory(), namePrefix+d.wwid))
			left = left || err == nil
		}
		if !left {
			return nil
		}
		if time.Now().After(over) {
			return connector.Errorf(connector.CodeFailed, "subsystem %s is disconnected, and something of it is left", p.nqn)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}
