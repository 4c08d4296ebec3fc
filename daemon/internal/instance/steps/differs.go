// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// Differs says how the persistent disks of a domain differ from its attachments, "" if they
// match: each disk is at its location, or at an overlay over it.
func Differs(dom *hv.Domain, atts []api.Attachment) string {
	for _, a := range atts {
		if a.State != api.AttachmentAttached {
			continue // an op is at it
		}
		d := dom.ConfigDisk(a.Device)
		var named bool
		var unknown error
		if d != nil {
			named, unknown = location.Names(d, a.Location.Path)
		}
		switch {
		case d == nil:
			return fmt.Sprintf("its definition has no disk %s, which is volume %s at %s; `virsh dumpxml --inactive %s` shows what is there", a.Device, a.VolumeID, a.Location.Path, dom.Name)
		case unknown != nil:
			return fmt.Sprintf("nobody can tell whether its disk %s is volume %s at %s: %v", a.Device, a.VolumeID, a.Location.Path, unknown)
		case !named:
			return fmt.Sprintf("its disk %s is at %s, and volume %s is at %s; `virsh dumpxml --inactive %s` shows what is there", a.Device, d.Top().Path, a.VolumeID, a.Location.Path, dom.Name)
		}
	}
	return ""
}
