// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
)

// What is not done with exports of NBD servers and with RBD images, and why, is in DESIGN.md of package
// location.

// checkFromExport refuses what is not done with a src that is at an address: it is copied by our
// own client, which knows no formats, and is its server's to remove.
func checkFromExport(s *steps.Spec) error {
	switch {
	case !api.IsNetwork(s.Src.Path):
		return nil
	case s.Dst.Format != api.FormatRaw:
		return api.Errorf(api.CodeInvalidArgument, "%s is %s, which is copied to raw only; say --to-format raw, and move the volume again from there", s.Src.Path, api.AddressKind(s.Src.Path))
	case s.DeleteSource:
		return api.Errorf(api.CodeInvalidArgument, "%s is %s, which is removed where it was made; leave out delete_source", s.Src.Path, api.AddressKind(s.Src.Path))
	}
	return nil
}

// chooseOverNetwork is chooseMethod for a volume that comes from or goes to an address.
func (m *Manager) chooseOverNetwork(s *steps.Spec, dom *hv.Domain, disk *hv.Disk, target api.MigrationTarget) error {
	if api.IsRBD(s.Src.Path) || api.IsRBD(target.ToPath) {
		return m.checkOffForRBD(s, dom, disk)
	}
	if err := m.chooseMethod(s, dom, disk, target.Method); err != nil {
		return err
	}
	if s.Method == steps.MethodMirror {
		// Of a src at an address nobody can tell, after a power cut, whether it was written behind dst.
		return unsupported(s, "it would have to be mirrored, which is not done from and to an NBD export; leave out --method, or, where the disk can have no overlay, stop instance %s and run this again", dom.Name)
	}
	return nil
}

// checkOffForRBD refuses to move a volume from or to an RBD image under a process. The instance is kept off.
func (m *Manager) checkOffForRBD(s *steps.Spec, dom *hv.Domain, disk *hv.Disk) error {
	if reason := immovable(disk); reason != "" {
		return unsupported(s, "disk %s of instance %s %s", s.Target, dom.Name, reason)
	}
	if dom.State.Active() {
		return unsupported(s, "from and to an RBD image a volume is moved only while its instance is stopped; stop %s and run this again: it is kept stopped until the end", dom.Name)
	}
	return m.checkKeptOff(s, dom)
}

// checkKeptOff refuses a move that has to keep an instance stopped, where nothing would.
func (m *Manager) checkKeptOff(s *steps.Spec, dom *hv.Domain) error {
	if err := m.ports.Guards.Enforced(); err != nil {
		return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: instance %s would have to be kept stopped, and %v; `volferryctl doctor` says what to do",
			s.VolumeName, dom.Name, err)
	}
	return nil
}
