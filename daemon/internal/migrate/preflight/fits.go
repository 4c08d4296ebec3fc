// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// checkFits refuses a dst that libvirt does not allow for the defined disk: libvirt would refuse
// the new definition after the whole copy. disk is nil for a volume without instance. Immovable
// refuses the settings that a move would lose. libvirt's checks of all other settings do not
// depend on the image.
func checkFits(s *move.Spec, disk *hv.Disk) error {
	if disk == nil {
		return nil
	}
	qcow2 := s.Dst.Format == api.FormatQcow2
	kind := s.DstKind()
	var has, allowed string
	switch {
	case disk.StartupPolicy != "" && !kind.Path:
		has, allowed = "startupPolicy='"+disk.StartupPolicy+"'", "no disk on "+kind.Name
	case disk.DiscardNoUnref && !qcow2:
		has, allowed = "discard_no_unref='on'", "qcow2 images only"
	case disk.Shareable && !disk.ReadOnly && qcow2:
		return Unsupported(s, "disk %s of instance %s is <shareable/>, which libvirt allows for raw images only; say --to-format raw", s.Target, s.InstanceName)
	default:
		return nil
	}
	return Unsupported(s, "disk %s of instance %s has %s, which libvirt allows for %s; take it out of the definition first", s.Target, s.InstanceName, has, allowed)
}
