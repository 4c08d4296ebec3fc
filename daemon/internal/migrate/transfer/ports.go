// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

type hypervisor interface {
	DiskStats(ctx context.Context, id, target string) (*hv.DiskStats, error)
	FindDeviceCopy(ctx context.Context, src, dst string) (*hv.DeviceCopy, error)
	CopyDevice(ctx context.Context, c hv.DeviceCopy, off int64, n int64) (until int64, err error)
}

type images interface {
	CheckOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64) (empty bool, err error)
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	Blank(ctx context.Context, l api.Location) (bool, error)
	FillFirstBlock(ctx context.Context, path string) error
}

type copier interface {
	Copy(ctx context.Context, req move.CopyRequest) (move.CopyResult, error)
	Unanswered(key string) (bool, error)
	Forget(ctx context.Context, key string) error
}

type history interface {
	Copied(ctx context.Context, s *move.Spec) (bool, error)
}
