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

// openServed opens an image of one of QEMU's own formats: QEMU serves it as a raw image. With
// layered it is Layered.
func openServed(ctx context.Context, i qemuimg.Image, layered bool, opts qemuimg.ServeOptions) (End, error) {
	conn, err := qemuimg.Serve(ctx, i, opts)
	if errors.Is(err, qemuimg.ErrLocked) {
		return nil, fmt.Errorf("%w: %s: %w", ErrInUse, i.Path, err)
	}
	if err != nil {
		return nil, err
	}
	// No timeout: the storage may be slow, as a raw image's may.
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
