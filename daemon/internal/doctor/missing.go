// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// missing checks that the images of volumes attached on this host exist, and that no other device
// has such a path. reach reports unreadable images. The view may be half a minute old, so the
// registry is asked about each missing image.
func (d *Doctor) missing(ctx context.Context, attached []api.Volume) []api.Check {
	const name = "images"
	out := []api.Check{}
	for _, vol := range attached {
		path := vol.Location.Path
		if api.IsNetwork(path) {
			continue
		}
		fingerprint, err := d.Storage.Fingerprint(ctx, path)
		if err == nil {
			err = image.CheckIdentity(vol.Location, image.IdentityIn(fingerprint))
		}
		switch {
		case errors.Is(err, image.ErrAbsent) && d.stillAt(ctx, &vol):
			out = append(out, api.Check{
				Name: name, Status: "fail", Message: fmt.Sprintf("there is no image of volume %s at %s", vol.Name, path),
				Advice: "mount its filesystem, or connect its device; if that is there and the file was deleted, leave its guest running: it has the file open, and its data is gone with it",
			})
		case api.CodeOf(err) == api.CodeChainChanged && d.stillAt(ctx, &vol):
			out = append(out, api.Check{
				Name: name, Status: "fail", Message: fmt.Sprintf("another device is at the path of volume %s: %v", vol.Name, err),
				Advice: "do not start its guest, nor stop one that runs and has the right device open, before that is at its path again (udev, multipath and the array say why the name has moved)",
			})
		}
	}
	if len(out) == 0 {
		out = append(out, ok(name, "the images of the volumes attached here are there"))
	}
	return out
}

// stillAt reports whether the registry still has a volume attached at the same path and device;
// true while it is silent.
func (d *Doctor) stillAt(ctx context.Context, known *api.Volume) bool {
	now, err := d.Volume(ctx, known.ID)
	if err != nil {
		return api.AsError(err).Code != api.CodeNotFound
	}
	return now.Location.Path == known.Location.Path && now.Location.Identity == known.Location.Identity && len(now.Attachments) > 0
}
