// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"cmp"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Differs returns how a domain's disks differ from its attachments, or "". Each disk, defined and
// running, must have its attachment's location, or an overlay over it.
func Differs(dom *hv.Domain, atts []api.Attachment) string {
	for i := range atts {
		a := &atts[i]
		if a.State != api.AttachmentAttached {
			continue // an op is changing it
		}
		if !dom.Persistent {
			return fmt.Sprintf("it has no definition any more: somebody has undefined it, and it is gone once it is off; define it again while it runs: %s", shell.DefineAgain(dom.Name))
		}
		if what := DefinitionDiffers(dom, a); what != "" {
			return what
		}
		if !dom.State.Active() {
			continue
		}
		live := side{"the running guest", "the running guest's disk", shell.Line("virsh", "dumpxml", "--", dom.Name), dom.LiveDisk(a.Device)}
		if what := live.differs(a); what != "" {
			return what + ". What the guest writes there, its volume does not get; volferryctl volume which and docs/how-to/recover.md (A guest on another image than its volume) say more"
		}
	}
	return ""
}

// DefinitionDiffers compares one attachment with the definition as Differs does.
func DefinitionDiffers(dom *hv.Domain, a *api.Attachment) string {
	config := side{"its definition", "its disk", shell.Line("virsh", "dumpxml", "--inactive", "--", dom.Name), dom.ConfigDisk(a.Device)}
	return config.differs(a)
}

type side struct {
	where, disk, shown string
	is                 *hv.Disk
}

func (s *side) differs(a *api.Attachment) string {
	if s.is == nil {
		return fmt.Sprintf("%s has no disk %s, which is volume %s at %s; `%s` shows what is there", s.where, a.Device, VolumeOf(a), a.Location.Path, s.shown)
	}
	named, err := location.Names(s.is, a.Location.Path)
	switch {
	case named:
		return ""
	case err != nil:
		return fmt.Sprintf("nobody can tell whether %s %s is volume %s at %s: %v", s.disk, a.Device, VolumeOf(a), a.Location.Path, err)
	}
	return fmt.Sprintf("%s %s is at %s, and volume %s is at %s; `%s` shows what is there", s.disk, a.Device, s.is.Top().Path, VolumeOf(a), a.Location.Path, s.shown)
}

// VolumeOf returns the name, or else the id, of an attachment's volume.
func VolumeOf(a *api.Attachment) string { return cmp.Or(a.VolumeName, a.VolumeID) }
