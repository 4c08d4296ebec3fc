// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

type domains interface {
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Process(ctx context.Context, id, target string) (hv.Process, error)
}

type jobs interface {
	BlockCopy(ctx context.Context, id, target string, dst hv.Image, opts hv.BlockCopyOptions) error
	CommitActive(ctx context.Context, id, target string, bytesPerSecond int64) error
	Job(ctx context.Context, id, target string) (*hv.Job, error)
	SetJobBandwidth(ctx context.Context, id, target string, bytesPerSecond int64) error
	AbortJob(ctx context.Context, id, target string) error
}

type limits interface {
	LiveWriteLimit(ctx context.Context, id, target string) (bytesPerSecond int64, err error)
	PutWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error
}

type images interface {
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	Flush(ctx context.Context, path string) error
	Fold(ctx context.Context, overlay string, into []hv.Image) error
}

type guards interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Enforced() error
}

type history interface {
	EndNotStored(ctx context.Context, s *move.Spec) (bool, error)
}
