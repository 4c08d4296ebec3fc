// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// missing checks that the image of each volume attached on this host exists, and that its path
// leads to no other device. The daemon's copy of the registry may be half a minute old, so missing
// also asks the registry.
func (d *Doctor) missing(ctx context.Context, attached []api.Volume) []api.Check {
	const name = "images"
	out := []api.Check{}
	for _, vol := range attached {
		path := vol.Location.Path
		if !medium.Of(path).Witnessed {
			continue
		}
		fingerprint, err := d.Storage.Fingerprint(ctx, path)
		if err == nil {
			err = image.CheckIdentity(vol.Location, image.IdentityIn(fingerprint))
		}
		switch {
		case errors.Is(err, image.ErrAbsent) && d.stillAt(ctx, &vol):
			out = append(out, api.Check{
				Name: name, Status: "fail", Message: fmt.Sprintf("the image of volume %s is missing at %s", vol.Name, path),
				Advice: "mount its filesystem, or connect its device; if the file was deleted, leave its guest running: QEMU still has the file open, and the data is lost when the guest ends",
			})
		case api.CodeOf(err) == api.CodeChainChanged && d.stillAt(ctx, &vol):
			out = append(out, api.Check{
				Name: name, Status: "fail", Message: fmt.Sprintf("another device is at the path of volume %s: %v", vol.Name, err),
				Advice: "do not start its guest, and do not stop a running guest, which may have the right device open, until the right device is at the path again (check udev, multipath and the array)",
			})
		}
	}
	if len(out) == 0 {
		out = append(out, ok(name, "the images of all volumes attached on this host exist"))
	}
	return out
}

// stillAt reports whether the registry still has a volume attached at the same path and device.
// While the registry does not answer, it returns true.
func (d *Doctor) stillAt(ctx context.Context, known *api.Volume) bool {
	now, err := d.Volume(ctx, known.ID)
	if err != nil {
		return api.AsError(err).Code != api.CodeNotFound
	}
	return now.Location.Path == known.Location.Path && now.Location.Identity == known.Location.Identity && len(now.Attachments) > 0
}
