// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

type nvme struct {
	target.Devices
	run       func(ctx context.Context, args ...string) ([]byte, error)
	installed func(program, debian string) error
	state     string
}

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

func (n nvme) read(p place) (subsystem, error) { return readSubsystem(n.Devices, p) }

func (n nvme) inspect(p place, in connector.Request) (connector.Answer, error) {
	if in.Volume == "" {
		if err := n.installed("nvme", "nvme-cli"); err != nil {
			return connector.Answer{}, err
		}
		return connector.Answer{Pool: &connector.Pool{
			Directory: n.ByID(), GranularityBytes: target.SectorBytes,
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
	return connector.Answer{Volume: &connector.Volume{Name: name, Path: filepath.Join(n.ByID(), name), SizeBytes: found.sizeBytes, Identity: found.wwid}}
}

func (nvme) absent(p place, volume string) error {
	return connector.Errorf(connector.CodeNotFound, "subsystem %s shows no namespace %s", p.nqn, volume)
}

// connect connects the subsystem through each missing address and awaits the namespace. One path
// is enough.
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

func (n nvme) reach(ctx context.Context, p place, s subsystem) error {
	var failed []error
	for _, a := range p.addresses {
		if s.reaches(a) {
			continue
		}
		if _, err := n.run(ctx, "nvme", "connect", "--transport", "tcp", "--traddr", a.Host, "--trsvcid", a.Port, "--nqn", p.nqn); err != nil {
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

// shows waits for a namespace and for its name. It rescans the subsystem once.
func (n nvme) shows(ctx context.Context, p place, volume string) (*namespace, error) {
	var found *namespace
	asked := false
	there, err := target.Until(ctx, n.Within, func() (bool, error) {
		s, err := n.read(p)
		if err != nil {
			return false, err
		}
		found = s.find(volume)
		if found == nil && !asked {
			asked = true
			for _, c := range s.controllers {
				if _, err := n.run(ctx, "nvme", "ns-rescan", n.Path(c.name)); err != nil {
					_, _ = os.Stderr.WriteString("nvme: " + err.Error() + "\n")
				}
			}
		}
		return found != nil && n.IsNamed(volume, found.disk), nil
	})
	switch {
	case err != nil:
		return nil, err
	case there:
		return found, nil
	case found != nil:
		return nil, connector.Errorf(connector.CodeFailed, "udev has given %s no name %s", found.disk, filepath.Join(n.ByID(), volume))
	}
	return nil, n.absent(p, volume)
}

func (n nvme) disconnect(ctx context.Context, p place, marks *target.Marks, in connector.Request) error {
	s, err := n.read(p)
	if err != nil {
		return err
	}
	if found := s.find(in.Volume); found != nil {
		if found.wwid != in.Identity {
			return connector.Errorf(connector.CodeChanged, "%s is %s by now, and not %.200s", in.Volume, found.wwid, in.Identity)
		}
		if err := n.NotUsed(ctx, found.disk); err != nil {
			return err
		}
	}
	return n.end(ctx, p, marks, in.Volume)
}

// end removes a volume's mark (target.Marks). Before it removes the last mark, it ends the
// session. If a disk of the session is in use then, perhaps a disk that this program did not
// connect, it returns an error, and session and mark stay.
func (n nvme) end(ctx context.Context, p place, marks *target.Marks, volume string) error {
	_, last, err := marks.Holds(volume)
	if err == nil && last {
		err = n.endSession(ctx, p)
	}
	if err != nil {
		return err
	}
	return marks.Remove(volume)
}

func (n nvme) endSession(ctx context.Context, p place) error {
	s, err := n.read(p)
	if err != nil {
		return err
	}
	var disks []string
	for _, d := range s.namespaces {
		disks = append(disks, d.disk)
	}
	if err := n.NotUsed(ctx, disks...); err != nil {
		return err
	}
	if len(s.controllers) > 0 {
		if _, err := n.run(ctx, "nvme", "disconnect", "--nqn", p.nqn); err != nil {
			return err
		}
	}
	return n.gone(ctx, p, s)
}

func (n nvme) gone(ctx context.Context, p place, was subsystem) error {
	gone, err := target.Until(ctx, n.Within, func() (bool, error) {
		now, err := n.read(p)
		left := slices.ContainsFunc(was.namespaces, func(d namespace) bool { return n.HasName(namePrefix + d.wwid) })
		return !left && len(now.controllers) == 0 && len(now.namespaces) == 0, err
	})
	if err == nil && !gone {
		err = connector.Errorf(connector.CodeFailed, "subsystem %s is disconnected, and something of it is left", p.nqn)
	}
	return err
}
