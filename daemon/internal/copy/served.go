// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
)

// openServed opens an image of one of QEMU's own formats, which QEMU serves: what is in it is read
// and written as of a raw image. If asked for, the end is Layered.
func openServed(ctx context.Context, i qemuimg.Image, layered bool, opts qemuimg.ServeOptions) (End, error) {
	conn, err := qemuimg.Serve(ctx, i, opts)
	if errors.Is(err, qemuimg.ErrLocked) {
		return nil, fmt.Errorf("%w: %s: %w", ErrInUse, i.Path, err)
	}
	if err != nil {
		return nil, err
	}
	// Its storage may take as long as it wants, as that of a raw image may.
	open := nbd.OpenOn
	if layered {
		open = nbd.OpenLayered
	}
	export, err := open(ctx, conn, storagedaemon.ExportName, 0)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return exportEnd{export, i.Path}, nil
}
