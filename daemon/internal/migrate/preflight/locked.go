// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// checkSrcNotLocked refuses a src that a QEMU outside this host's guests may write: on another
// host by NFS, or in a process that libvirt does not know. Readers are allowed.
func (c *Checks) checkSrcNotLocked(ctx context.Context, s *move.Spec) error {
	if s.Attached() {
		dom, err := c.domains.Domain(ctx, s.InstanceID)
		if err != nil {
			return look.HVRefusal(err)
		}
		if dom.State.Active() { // QEMU's locks prevent other writers
			return nil
		}
	}
	locks, err := c.users.Locks(ctx, s.Src.Path)
	switch {
	case err != nil:
		return look.UserUnknown(s.Src.Path, err)
	case locks.Writes:
		return api.Errorf(api.CodeVolumeInUse, "cannot migrate volume %s: by QEMU's locks, a QEMU of this host or of another has %s open for writing, which no instance here has; stop that guest or program, and call again",
			s.VolumeName, s.Src.Path)
	}
	return nil
}

// checkDstNotLocked refuses to write a file that QEMU has open, even for reading.
func (c *Checks) checkDstNotLocked(ctx context.Context, path string) error {
	locks, err := c.users.Locks(ctx, path)
	switch {
	case err != nil:
		return look.UserUnknown(path, err)
	case locks.Open:
		return api.Errorf(api.CodeDstInUse, "by QEMU's locks, a QEMU of this host or of another has %s open; stop that guest or program, or name another destination", path)
	}
	return nil
}
