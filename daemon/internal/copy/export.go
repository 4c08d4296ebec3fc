// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/daemon/internal/network"
)

// exportEnd is the image at an address: an export of an NBD server, or a served RBD image. It has
// no locks; the caller must know that there are no other writers.
type exportEnd struct {
	*nbd.Export

	path string
}

// openExport opens an image. Its reads end with ctx, so that a silent server does not block a
// cancel.
func openExport(ctx context.Context, access network.Access, path string, writable bool) (End, error) {
	export, err := access.Open(ctx, path, writable)
	if err != nil {
		return nil, err
	}
	if writable && export.ReadOnly() {
		return nil, errors.Join(&ImageError{Path: path, Reason: "its server takes no writes"}, export.Close())
	}
	return exportEnd{export, path}, nil
}

func (e exportEnd) Size() int64 { return e.SizeBytes() }

// Zero implements End. It writes zeros if the server cannot make them.
func (e exportEnd) Zero(off, n int64) error {
	err := e.ZeroAt(off, n)
	if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	for end := off + n; off < end; {
		m, err := e.WriteAt(zeroBlock[:min(end-off, int64(len(zeroBlock)))], off)
		if err != nil {
			return err
		}
		off += int64(m)
	}
	return nil
}

// Flush makes the server flush. The server decides whether later reads come from the storage.
func (e exportEnd) Flush() error {
	if err := e.Export.Flush(); err != nil {
		return &FlushError{e.path, err}
	}
	return nil
}

func (e exportEnd) Extent(off int64) (until int64, data bool, err error) {
	until, data, err = e.Export.Extent(off)
	if err != nil {
		return 0, false, &ReadError{e.path, off, err}
	}
	return until, data, nil
}

func (e exportEnd) Own(off int64) (until int64, own bool, err error) {
	until, own, err = e.Export.Own(off)
	if err != nil {
		return 0, false, &ReadError{e.path, off, err}
	}
	return until, own, nil
}
