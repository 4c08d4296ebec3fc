// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// addressed has the methods that are the same for NBD exports and RBD images: this host has
// neither a file nor a cache of them.
type addressed struct {
	network network.Access
	files   openfile.Files
	// noImage is the storage's error for an absent image. It is nil if an absent image cannot be
	// distinguished from an absent server.
	noImage error
}

// inspect returns the size and identity of the image. While the server is down, the error is not
// ErrAbsent.
func (a addressed) inspect(ctx context.Context, l api.Location) (Info, error) {
	if l.Format != api.FormatRaw {
		return Info{}, api.Errorf(api.CodeUnsupportedDisk, "%s has the format %s, and %s can only be raw here", l.Path, l.Format, medium.Of(l.Path).Name)
	}
	n, id, err := a.network.Look(ctx, l.Path)
	if err != nil {
		return Info{}, a.cannotReach(l.Path, err)
	}
	info := Info{SizeBytes: n, Identity: id}
	return info, CheckIdentity(l, id)
}

// stamp returns only the size, because a server does not report when an image was written.
func (a addressed) stamp(ctx context.Context, path string) (Stamp, error) {
	n, err := a.network.SizeBytes(ctx, path)
	return Stamp{SizeBytes: n}, a.cannotReach(path, err)
}

func (addressed) realPath(path string) (string, error) { return path, nil }

func (addressed) readBacking(string, api.Format) (api.Backing, error) {
	return "", nil // inspect refuses all formats but raw
}

func (addressed) rights(context.Context, string) (*Rights, error) { return nil, nil }

func (addressed) attributes(string) attributes { return attributes{} }

func (addressed) locks(string) (Locks, error) { return Locks{}, nil }

func (addressed) written(string) (bool, error) { return false, nil }

func (addressed) storeLike(string, attributes) (left []string, err error) { return nil, nil }

func (a addressed) fold(ctx context.Context, overlay string, into []hv.Image, _ []byte) error {
	top := into[0]
	size := func() (int64, error) {
		is, err := a.inspect(ctx, api.Location{Path: top.Path, Format: api.Format(top.Format)})
		return is.SizeBytes, err
	}
	n, err := size()
	if err != nil {
		return err
	}
	to := copy.Image{Path: top.Path, Format: top.Format, SizeBytes: cmp.Or(top.SliceBytes, n), Slice: top.SliceBytes != 0}
	if err := copy.Fold(ctx, copy.FoldSpec{Overlay: overlay, Into: to, Network: a.network, Files: a.files}); err != nil {
		return noSpace(err)
	}
	_, err = size() // the last flush may have ended in a cache of a server that has restarted since
	return err
}

func (addressed) remove(string) error { return nil }

func (addressed) connect(context.Context, string) error { return nil }

func (addressed) disconnect(context.Context, string) error { return nil }

// cannotReach translates an error of the storage. It returns ErrAbsent if the storage reports that
// there is no image, and hv.ErrUnavailable while libvirt, which has a cluster's key, is
// unavailable.
func (a addressed) cannotReach(path string, err error) error {
	var refused *api.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hv.ErrUnavailable):
		return err
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, a.noImage):
		return fmt.Errorf("look at %s: %w", path, ErrAbsent)
	}
	return api.Errorf(api.CodeStateForbidden, "%s cannot be used: %v", path, err)
}
