// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// Ports are the systems that volumes use.
type Ports struct {
	Pools    Pools
	Guests   Guests
	Registry Registry
	Changes  Changes
	Images   Images
	Files    Files
	Claims   *location.Claims
	// Left returns the paths of a volume's existing released sources on this host that are no
	// volume (released.Sources). Left is nil if no volume was ever moved.
	Left func(ctx context.Context, volumeID string) ([]string, error)
	// Adoptable refuses an image that is the released source of a move of this host
	// (released.Sources). Its error begins with verdict. Adoptable is nil if no volume was ever
	// moved.
	Adoptable func(ctx context.Context, path, verdict string) error
	// Recorded refuses a volume if this host's journal and the registry have different locations
	// of it (which.Finder). Recorded is nil if no volume was ever moved.
	Recorded func(ctx context.Context, vol api.Volume) error
}

// Registry has the registry's calls that read hosts, types and volumes, or store properties of a
// volume's image. Every change has an op id and may be repeated. Errors are *api.Error; after
// registry_unavailable the outcome is unknown.
type Registry interface {
	Host(ctx context.Context, ref string) (api.Host, error)
	Type(ctx context.Context, ref string) (api.VolumeType, error)
	EachVolume(ctx context.Context, do func(*api.Volume) error) error
	Volume(ctx context.Context, id string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
	IdentifyVolume(ctx context.Context, opID, ref string, in api.VolumeIdentify) (api.Volume, error)
}

// Changes changes the state of a volume at the registry. Op ids and errors are as in Registry.
type Changes interface {
	RegisterVolume(ctx context.Context, opID string, in api.VolumeRegister) (api.Volume, error)
	TransitionVolume(ctx context.Context, opID, id string, t api.VolumeTransition) (api.Volume, error)
	DeleteVolume(ctx context.Context, opID, id string) error
	BeginResize(ctx context.Context, opID, id string, in api.VolumeResizeBegin) (api.Volume, error)
	EndResize(ctx context.Context, opID, id string, in api.VolumeResizeEnd) (api.Volume, error)
}

// Images describes image files and devices of this host, and their users, by path. image.Storage
// documents the calls.
type Images interface {
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	ReadBacking(ctx context.Context, path string, format api.Format) (api.Backing, error)
	CheckFits(ctx context.Context, l api.Location, info image.Info) error
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	Written(ctx context.Context, path string) (bool, error)
	Fingerprint(ctx context.Context, path string) (string, error)
}

// Files changes and removes the image files of volumes, and checks their directories.
// image.Storage documents the calls.
type Files interface {
	Grow(ctx context.Context, img hv.Image, sizeBytes int64) error
	Sync(ctx context.Context, path string) error
	FreeBytes(dir string) (int64, error)
	CheckFileBytes(path string, bytes int64) error
	MayWrite(path string) error
	FillFirstBlock(ctx context.Context, path string) error
	Remove(ctx context.Context, path string) error
}

// Pools makes, finds, grows and deletes the volumes of pools.
type Pools interface {
	location.PoolVolumes
	RoundedBytes(ctx context.Context, pool string, sizeBytes int64) (int64, error)
	CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64, backing []hv.Image) (*hv.PoolVolume, error)
	DeleteVolume(ctx context.Context, pool, name string) error
	ExtendVolume(ctx context.Context, pool, name string, sizeBytes int64) error
}

// Guests reads the domains of this host and the sizes of their disks, and grows disks.
type Guests interface {
	Domains(ctx context.Context) ([]hv.Domain, error)
	Domain(ctx context.Context, id string) (*hv.Domain, error)
	DiskStats(ctx context.Context, id, target string) (*hv.DiskStats, error)
	GrowDisk(ctx context.Context, id, target string, sizeBytes int64) error
	SetConfigChain(ctx context.Context, id, target string, chain []hv.Image) error
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
}

func (p *Ports) holders() location.Guests {
	return struct {
		location.PoolVolumes
		Guests
	}{p.Pools, p.Guests}
}
