// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// MayCopyBehind refuses to fold the overlay into a dst over base images if the guest's QEMU may
// omit zeros there (hv.CopySkipsZeros).
func (e *Env) MayCopyBehind(ctx context.Context, s *move.Spec) error {
	v, err := e.processes.QEMUVersion(ctx, s.InstanceID)
	switch {
	case errors.Is(err, hv.ErrNotActive):
		return nil
	case err != nil:
		return e.move.HVError(err)
	case v == (hv.Version{}): // the process may just have ended
		if open, err := e.OpenImages(ctx, s); err == nil && !open.process {
			return nil
		}
	}
	if hv.CopySkipsZeros(v) {
		which := "QEMU " + v.String()
		if v == (hv.Version{}) {
			which = "a QEMU of an unknown version"
		}
		return api.Errorf(api.CodeUnsupportedDisk, "instance %s runs in %s, which may leave out zeros in a destination over base images, so that these would show through; stop the instance first, or move the volume without keeping its base images",
			s.InstanceName, which)
	}
	return nil
}
