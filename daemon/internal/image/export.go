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
)

// inspectAddress asks what is at an address: its size and its identity. A server that is away says
// nothing about what it has: that is never ErrAbsent.
func inspectAddress(ctx context.Context, access network.Access, path string, format api.Format) (Info, error) {
	if format != api.FormatRaw {
		return Info{}, api.Errorf(api.CodeUnsupportedDisk, "%s has the format %s, and %s can only be raw here", path, format, api.AddressKind(path))
	}
	n, id, err := access.Look(ctx, path)
	if err != nil {
		return Info{}, cannotReach(path, err)
	}
	return Info{SizeBytes: n, Identity: id}, nil
}

// cannotReach is the error of what is at an address, ErrAbsent if a cluster says that there is
// nothing, and hv.ErrUnavailable while nobody can be asked for what opens it.
func cannotReach(path string, err error) error {
	var refused *api.Error
	switch {
	case errors.Is(err, hv.ErrUnavailable): // libvirt, which has the key of a cluster
		return err
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, unix.ENOENT) && api.IsRBD(path):
		return fmt.Errorf("look at %s: %w", path, ErrAbsent)
	}
	return api.Errorf(api.CodeStateForbidden, "%s cannot be used: %v", path, err)
}
