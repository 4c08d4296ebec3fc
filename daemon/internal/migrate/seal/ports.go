// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
)

type hypervisor interface {
	LookupVolume(ctx context.Context, pool, name string) (*hv.PoolVolume, error)
}

type images interface {
	Stamp(ctx context.Context, path string) (image.Stamp, error)
	Fingerprint(ctx context.Context, path string) (string, error)
	Snapshot(ctx context.Context, path, name string, compare bool) (rbd.Snapshot, error)
	MakeSnapshot(ctx context.Context, path, fingerprint, name string) error
	RemoveSnapshot(ctx context.Context, path, fingerprint, name string, id uint64) error
	Flush(ctx context.Context, path string) error
}

type registry interface {
	IdentifyVolume(ctx context.Context, opID, ref string, in api.VolumeIdentify) (api.Volume, error)
}

type history interface {
	Copied(ctx context.Context, s *move.Spec) (bool, error)
	Facts(ctx context.Context, s *move.Spec, exceptOp string) (move.Facts, error)
	Dst(ctx context.Context, s *move.Spec) (move.DstNote, error)
}
