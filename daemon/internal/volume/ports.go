// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// Ports are the systems that volumes are made in.
type Ports struct {
	HV       hv.Hypervisor
	Registry Registry
	Images   Images
	// Claims knows which images belong to somebody.
	Claims *location.Claims
	// Left returns the paths of the images that a volume has left by moves of this host, and
	// that are there and no volume's (migrate.Manager). Nil: no volume was ever moved.
	Left func(ctx context.Context, volumeID string) ([]string, error)
	// Adoptable refuses an image that a volume has left by a move of this host
	// (migrate.Manager); verdict begins the refusal. Nil: no volume was ever moved.
	Adoptable func(ctx context.Context, path, verdict string) error
	// Recorded refuses a volume that the journal of this host has elsewhere than the registry,
	// since a move that the registry does not know (migrate.Manager.CheckVolumeRecorded). Nil: no
	// volume was ever moved.
	Recorded func(ctx context.Context, vol api.Volume) error
}

// Registry is the part of the registry that volumes need. Every change has an op id and may
// be repeated. Errors are *api.Error; the code registry_unavailable means that the outcome
// is unknown.
type Registry interface {
	// Host finds a host by id or name.
	Host(ctx context.Context, ref string) (api.Host, error)
	// Type finds a volume type by id or name.
	Type(ctx context.Context, ref string) (api.VolumeType, error)
	EachVolume(ctx context.Context, do func(*api.Volume) error) error
	Volume(ctx context.Context, id string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
	IdentifyVolume(ctx context.Context, opID, ref string, in api.VolumeIdentify) (api.Volume, error)
	RegisterVolume(ctx context.Context, opID string, in api.VolumeRegister) (api.Volume, error)
	TransitionVolume(ctx context.Context, opID, id string, t api.VolumeTransition) (api.Volume, error)
	DeleteVolume(ctx context.Context, opID, id string) error
	// BeginResize keeps everybody else from a volume until EndResize.
	BeginResize(ctx context.Context, opID, id string, in api.VolumeResizeBegin) (api.Volume, error)
	EndResize(ctx context.Context, opID, id string, in api.VolumeResizeEnd) (api.Volume, error)
}

// Images are the image files and devices of this host, by path: the part of
// image.Storage that is about a single one.
type Images interface {
	// Inspect reads size and kind of the image at a location. It returns image.ErrAbsent if
	// there is nothing at its path, and an *api.Error if the image is not as the location
	// says, or has other base images.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// ReadBacking returns the base images of an image, by its header and those below it, if
	// it is said to be qcow2.
	ReadBacking(ctx context.Context, path string, format api.Format) (api.Backing, error)
	// CheckFits refuses a qcow2 image on a block device that it may outgrow.
	CheckFits(ctx context.Context, l api.Location, info image.Info) error
	// InUse says in words who holds the image: a mount, a device mapper or loop device,
	// swap, or, of an RBD image, clients besides those that ours counts, which may be nil. It
	// returns "" if nobody does as far as this host can see.
	InUse(ctx context.Context, path string, ours func(context.Context) (least, most int, err error)) (string, error)
	// Written reports whether some process of this host, or QEMU on another, is seen to have the
	// file open for writing.
	Written(ctx context.Context, path string) (bool, error)
	// Fingerprint tells an image from a later image at the same path, also after a reboot.
	// It returns image.ErrAbsent if there is nothing.
	Fingerprint(ctx context.Context, path string) (string, error)
	// Grow makes an image file sizeBytes large, durably; the added bytes read as zeros. A
	// file that has this size already is no error, and no file gets smaller. It returns
	// hv.ErrInUse if QEMU has the file open.
	Grow(ctx context.Context, img hv.Image, sizeBytes int64) error
	// Sync puts on stable storage what another program has changed of an image.
	Sync(ctx context.Context, path string) error
	// FreeBytes returns how much a file in dir may still grow.
	FreeBytes(dir string) (int64, error)
	// CheckFileBytes returns an *image.LimitError if the filesystem of a file is known to hold none
	// of this size.
	CheckFileBytes(path string, bytes int64) error
	// MayWrite refuses an image in a directory where this program cannot write.
	MayWrite(path string) error
	// FillFirstBlock makes sure, durably, that a raw file which nobody writes to does not begin
	// with a hole: QEMU opens such a file for cache none only if its size is a multiple of
	// image.MaxAlignBytes.
	FillFirstBlock(ctx context.Context, path string) error
	// Remove unlinks a file, durably. It is no error if there is none. A block device is
	// never removed.
	Remove(ctx context.Context, path string) error
}
