// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/internal/api"
)

type domains interface {
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Job(ctx context.Context, id string, target string) (*hv.Job, error)
	CanTrack(ctx context.Context, id string, target string) error
}

type processes interface {
	hv.QEMUUsers
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
}

type versions interface {
	About(ctx context.Context) (hv.About, error)
	QEMUVersion(ctx context.Context, id string) (hv.Version, error)
}

type pools interface {
	location.PoolVolumes
	RoundedBytes(ctx context.Context, pool string, sizeBytes int64) (int64, error)
}

type images interface {
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	Fingerprint(ctx context.Context, path string) (string, error)
	Properties(path string) (image.Properties, error)
	Rights(ctx context.Context, path string) (*image.Rights, error)
	FullBytes(ctx context.Context, sizeBytes int64) (int64, error)
}

// imageUsers shows who has an image open, and whether writes of an earlier user may still come.
type imageUsers interface {
	Locks(ctx context.Context, path string) (image.Locks, error)
	Fence(ctx context.Context, path string) error
}

type allocation interface {
	Allocating(dir string) (image.Allocating, error)
	Thick(path string, sizeBytes int64) (bool, error)
	AttributesLost(path string, dir string, filled bool) ([]string, error)
}

type directories interface {
	MayWrite(path string) error
	TryDirectory(user hv.ProcessUser, dir string, needs image.Needs) error
	DirectAlignBytes(dir string, hole bool) (int64, error)
}

type files interface {
	FreeBytes(dir string) (int64, error)
	Quotas(ctx context.Context, dir string, who hv.ProcessUser) ([]quota.Limit, error)
	AllocatedBytes(path string) (int64, error)
	ClusterBytes(path string) (int64, error)
}

type poolLister interface {
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
}

type registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID string, ref string, in api.VolumeGrow) (api.Volume, error)
}

type guards interface {
	Enforced() error
}
