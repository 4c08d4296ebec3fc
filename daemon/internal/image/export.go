// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// inspectAddress returns the size and identity of the image at an address. A server that is down
// does not mean an absent image: the error is then never ErrAbsent.
func inspectAddress(ctx context.Context, access network.Access, path string, format api.Format) (Info, error) {
	if format != api.FormatRaw {
		return Info{}, api.Errorf(api.CodeUnsupportedDisk, "%s has the format %s, and %s can only be raw here", path, format, medium.AddressKind(path))
	}
	n, id, err := access.Look(ctx, path)
	if err != nil {
		return Info{}, cannotReach(path, err)
	}
	return Info{SizeBytes: n, Identity: id}, nil
}

// cannotReach translates the error of an image at an address. It returns ErrAbsent if a cluster
// reports that there is no image, and hv.ErrUnavailable while its key is unavailable.
func cannotReach(path string, err error) error {
	var refused *api.Error
	switch {
	case errors.Is(err, hv.ErrUnavailable): // libvirt, which has the key of a cluster
		return err
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, unix.ENOENT) && medium.IsRBD(path):
		return fmt.Errorf("look at %s: %w", path, ErrAbsent)
	}
	return api.Errorf(api.CodeStateForbidden, "%s cannot be used: %v", path, err)
}
