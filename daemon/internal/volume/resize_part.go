// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// A part is how much of its image a volume is: the whole image, or the image's beginning.
type part interface {
	// check refuses a resize that is impossible with an image of foundBytes.
	check(ctx context.Context, e *env, foundBytes int64) error
	// bytes returns the volume's size if its image has imageBytes. dom is the instance with the
	// volume, or nil.
	bytes(dom *hv.Domain, imageBytes int64) int64
	// on returns the volume's location with the size that disk, a disk on the volume, may have.
	on(disk *hv.Disk) api.Location
}

func (in *resizeInput) part() part {
	if in.Location.IsSlice() {
		return beginning{in}
	}
	return whole{in}
}
