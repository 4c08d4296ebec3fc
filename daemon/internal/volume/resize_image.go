// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

func (e *env) inspect(ctx context.Context, in *resizeInput) (image.Info, error) {
	info, err := e.Images.Inspect(ctx, in.Location)
	if errors.Is(err, image.ErrAbsent) {
		return info, in.cannot(api.CodeNotFound, "there is nothing at %s on this host", in.Location.Path)
	}
	return info, err
}

// checkGrowth refuses a filesystem without space for all added bytes.
func (e *env) checkGrowth(in *resizeInput, addedBytes int64) error {
	dir := filepath.Dir(in.Location.Path)
	if err := e.Files.CheckFileBytes(in.Location.Path, in.SizeBytes); err != nil {
		return image.Refused("resize volume "+in.VolumeName, dir, err)
	}
	free, err := e.Files.FreeBytes(dir)
	if err != nil || free >= addedBytes {
		return err
	}
	return in.cannot(api.CodeNoSpace, "the filesystem of %s has %s free, and the volume may grow by %s", dir, humanize.ExactBytes(free), humanize.ExactBytes(addedBytes)).
		With("free_bytes", free).With("needed_bytes", addedBytes)
}

func (in *resizeInput) tooSmall(found int64) error {
	return in.cannot(api.CodeUnsupportedDisk, "%s is a block device of %s, and a device is made larger where it was made (of LVM with `%s`); do that, and ask again for the size that it has then: its guest and the registry get it",
		in.Location.Path, humanize.ExactBytes(found), shell.ExtendVolume(in.Location.Path, in.SizeBytes)).With("found_bytes", found).With("size_bytes", in.SizeBytes)
}

func (in *resizeInput) chainChanged(dom *hv.Domain) error {
	return in.cannot(api.CodeChainChanged, "disk %s of instance %s is not on %s alone; `%s` says what it is on", in.Device, dom.Name, in.Location.Path, shell.Line("volferryctl", "volume", "which", in.VolumeName))
}
