// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"strconv"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// Grower stores new sizes of grown images; the registry implements it.
type Grower interface {
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
}

// TakeSize stores foundBytes, the size of a volume's image, at the registry if it is larger than
// the registry's size. It returns the registry's resulting size. It refuses (size_mismatch) an
// image smaller than its volume, because the missing part may have held data.
func TakeSize(ctx context.Context, registry Grower, volumeID, volumeName string, l api.Location, foundBytes int64) (int64, error) {
	foundBytes = l.VolumeBytes(foundBytes)
	switch {
	case foundBytes == l.SizeBytes:
		return foundBytes, nil
	case foundBytes < l.SizeBytes:
		return l.SizeBytes, Shrunk(volumeName, l, foundBytes)
	}
	v, err := registry.GrowVolume(ctx, uuid.NewString(), volumeID, api.VolumeGrow{FromBytes: l.SizeBytes, SizeBytes: foundBytes})
	if err != nil {
		return l.SizeBytes, err
	}
	return v.SizeBytes, nil
}

// Shrunk returns the refusal of an image that is smaller than its volume.
func Shrunk(volumeName string, l api.Location, foundBytes int64) error {
	return api.Errorf(api.CodeSizeMismatch,
		"volume %s is %s at %s but %s in the registry: it was made smaller, or is another image; if it is the volume, and nothing is missing, an operator sets the size at the registry: `%s`",
		volumeName, humanize.ExactBytes(foundBytes), l.Path, humanize.ExactBytes(l.SizeBytes), shell.Line("volferryctl", "volume", "set-size", volumeName, "--size", strconv.FormatInt(foundBytes, 10), "--evidence", "TEXT")).With("size_bytes", l.SizeBytes).With("found_bytes", foundBytes)
}
