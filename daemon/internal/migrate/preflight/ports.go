// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/internal/api"
)

type hypervisor interface {
	About(ctx context.Context) (hv.About, error)
	Job(ctx context.Context, id string, target string) (*hv.Job, error)
	Connectable(ctx context.Context, path string) (bool, error)
	ConnectDevice(ctx context.Context, path string) error
	DisconnectDevice(ctx context.Context, path string) error
	CanTrack(ctx context.Context, id string, target string) error
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	Pools(ctx context.Context) ([]hv.PoolInfo, error)
	RoundedBytes(ctx context.Context, pool string, sizeBytes int64) (int64, error)
	LookupVolume(ctx context.Context, pool string, name string) (*hv.PoolVolume, error)
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
	Process(ctx context.Context, id string, target string) (hv.Process, error)
	QEMUVersion(ctx context.Context, id string) (hv.Version, error)
	WriteDeniedBy(ctx context.Context, id string, path string) (*hv.Rule, error)
	QEMUUser(ctx context.Context, id string) (hv.ProcessUser, error)
}

type images interface {
	CheckSecret(ctx context.Context, img hv.Image) error
	PayloadBytes(ctx context.Context, img hv.Image) (int64, error)
	FullBytes(ctx context.Context, sizeBytes int64) (int64, error)
	Rights(ctx context.Context, path string) (*image.Rights, error)
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	Fingerprint(ctx context.Context, path string) (string, error)
	Fence(ctx context.Context, path string) error
	Locks(ctx context.Context, path string) (image.Locks, error)
	AllocatedBytes(path string) (int64, error)
	Properties(path string) (image.Properties, error)
	ClusterBytes(path string) (int64, error)
	FreeBytes(dir string) (int64, error)
	Quotas(ctx context.Context, dir string, who hv.ProcessUser) ([]quota.Limit, error)
	Allocating(dir string) (image.Allocating, error)
	Thick(path string, sizeBytes int64) (bool, error)
	AttributesLost(path string, dir string, filled bool) ([]string, error)
	TryDirectory(user hv.ProcessUser, dir string, needs image.Needs) error
	MayWrite(path string) error
	DirectAlignBytes(dir string, hole bool) (int64, error)
}

type registry interface {
	Volume(ctx context.Context, id string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID string, ref string, in api.VolumeGrow) (api.Volume, error)
}

type guards interface {
	Enforced() error
}
