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
	// volume (released.Sources). Nil: no volume was ever moved.
	Left func(ctx context.Context, volumeID string) ([]string, error)
	// Adoptable refuses an image that a volume has left by a move of this host (released.Sources);
	// the refusal begins with verdict. Nil: no volume was ever moved.
	Adoptable func(ctx context.Context, path, verdict string) error
	// Recorded refuses a volume that this host's journal and the registry have at different places
	// (which.Finder). Nil: no volume was ever moved.
	Recorded func(ctx context.Context, vol api.Volume) error
}

// Registry has the hosts, types and volumes of the registry, and stores what this host reads from
// the image of a volume. Every change has an op id and may be repeated. Errors are *api.Error;
// after registry_unavailable the outcome is unknown.
type Registry interface {
	Host(ctx context.Context, ref string) (api.Host, error)
	Type(ctx context.Context, ref string) (api.VolumeType, error)
	EachVolume(ctx context.Context, do func(*api.Volume) error) error
	Volume(ctx context.Context, id string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
	IdentifyVolume(ctx context.Context, opID, ref string, in api.VolumeIdentify) (api.Volume, error)
}

// Changes changes the state of a volume at the registry, with the promises of Registry.
type Changes interface {
	RegisterVolume(ctx context.Context, opID string, in api.VolumeRegister) (api.Volume, error)
	TransitionVolume(ctx context.Context, opID, id string, t api.VolumeTransition) (api.Volume, error)
	DeleteVolume(ctx context.Context, opID, id string) error
	BeginResize(ctx context.Context, opID, id string, in api.VolumeResizeBegin) (api.Volume, error)
	EndResize(ctx context.Context, opID, id string, in api.VolumeResizeEnd) (api.Volume, error)
}

// Images describes image files and devices of this host, and shows who uses them, by path
// (image.Storage).
type Images interface {
	// Inspect returns size and kind of the image at a location, image.ErrAbsent for a missing
	// path, and an *api.Error if the image contradicts the location, or has other base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// ReadBacking returns the base images of a qcow2 image by its headers.
	ReadBacking(ctx context.Context, path string, format api.Format) (api.Backing, error)
	// CheckFits refuses a qcow2 image that may outgrow its block device.
	CheckFits(ctx context.Context, l api.Location, info image.Info) error
	// InUse describes the holder of an image, or "" if this host sees none: a mount, a device
	// mapper or loop device, swap or, for an RBD image, more clients than ours (may be nil)
	// counts.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Written reports whether a process of this host, or QEMU on another host, seems to have the
	// file open for writing.
	Written(ctx context.Context, path string) (bool, error)
	// Fingerprint distinguishes an image from a later image at the same path, also after a reboot.
	// It returns image.ErrAbsent for a missing path.
	Fingerprint(ctx context.Context, path string) (string, error)
}

// Files changes and removes the image files of volumes, and checks their directories
// (image.Storage).
type Files interface {
	// Grow makes an image file sizeBytes large, durably; the added bytes read as zeros. It shrinks
	// no file. It returns hv.ErrInUse if QEMU has the file open.
	Grow(ctx context.Context, img hv.Image, sizeBytes int64) error
	// Sync puts another program's changes of an image on stable storage.
	Sync(ctx context.Context, path string) error
	// FreeBytes returns by how much a file in dir may grow.
	FreeBytes(dir string) (int64, error)
	// CheckFileBytes returns an *image.LimitError if the filesystem is known to hold no file of
	// this size.
	CheckFileBytes(path string, bytes int64) error
	// MayWrite refuses a directory that this program cannot write.
	MayWrite(path string) error
	// FillFirstBlock writes the first block of an unused raw file, durably, if it is a hole: with
	// a hole there, QEMU opens the file with cache=none only if its size is a multiple of
	// image.MaxAlignBytes.
	FillFirstBlock(ctx context.Context, path string) error
	// Remove unlinks a file, durably, if it exists. It removes no block device.
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

// holders is the location.Guests of these ports.
func (p *Ports) holders() location.Guests {
	return struct {
		location.PoolVolumes
		Guests
	}{p.Pools, p.Guests}
}
