// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// A part is the part of its image that a volume is: all of it, or its beginning.
type part interface {
	// check refuses a resize that an image of foundBytes does not permit.
	check(ctx context.Context, e *env, foundBytes int64) error
	// bytes returns the volume's size, if its image has imageBytes and dom, or no instance if nil,
	// has the volume.
	bytes(dom *hv.Domain, imageBytes int64) int64
	// on returns the volume's location with the size that a disk with the volume has.
	on(disk *hv.Disk) api.Location
}

func (in *resizeInput) part() part {
	if in.Location.IsSlice() {
		return beginning{in}
	}
	return whole{in}
}
