// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
)

type hypervisor interface {
	SetConfigChain(ctx context.Context, id, target string, chain []hv.Image) error
	Snapshot(ctx context.Context, id, target string, overlay hv.Image) (held time.Duration, err error)
	Pivot(ctx context.Context, id, target string) error
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
	Process(ctx context.Context, id, target string) (hv.Process, error)
}

type images interface {
	CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error
	CheckOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64) (empty bool, err error)
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	Remove(ctx context.Context, path string) error
	Beside(path string) ([]string, error)
}

type guards interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
}
