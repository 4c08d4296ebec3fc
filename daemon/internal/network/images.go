// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

type images struct{ client *rbd.Client }

func (i images) open(ctx context.Context, path string, writable bool) (*nbd.Export, error) {
	return i.client.Open(ctx, path, writable)
}

func (i images) look(ctx context.Context, path string) (sizeBytes int64, id string, err error) {
	info, err := i.client.LookWhole(ctx, path)
	return info.SizeBytes, info.ID, err
}
