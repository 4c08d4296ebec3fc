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
	// Claims knows which images are spoken for.
	Claims *location.Claims
}

// Registry is what volumes need of the registry. Every mutation carries an op
// id and may be repeated. Errors are *api.Error; the code registry_unavailable
// means that the outcome is unknown.
type Registry interface {
	// Host finds a host by id or name.
	Host(ctx context.Context, ref string) (api.Host, error)
	// Type finds a volume type by id or name.
	Type(ctx context.Context, ref string) (api.VolumeType, error)
	Volumes(ctx context.Context) ([]api.Volume, error)
	Volume(ctx context.Context, id string) (api.Volume, error)
	GrowVolume(ctx context.Context, opID, ref string, in api.VolumeGrow) (api.Volume, error)
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
	// Inspect reads size and kind of the image at a location. image.ErrAbsent if there is
	// nothing at its path; an *api.Error if what is there is no such image, or is over others
	// than the location says.
	Inspect(ctx context.Context, l api.Location) (image.Info, error)
	// ReadBacking returns what an image is over, by its header and those below it, if it is
	// said to be qcow2.
	ReadBacking(ctx context.Context, path string, format api.Format) (api.Backing, error)
	// InUse says who holds the image, in words, or "" if nobody that can be
	// seen on this host does: a mount, a device mapper or loop device, swap.
	InUse(ctx context.Context, path string) (string, error)
	// Written says whether some process of this host is seen to have the file open
	// for writing.
	Written(ctx context.Context, path string) (bool, error)
	// Fingerprint tells an image from another one that is at its path later, also
	// after a reboot. image.ErrAbsent if there is nothing.
	Fingerprint(ctx context.Context, path string) (string, error)
	// Grow makes an image file sizeBytes large, durably; what is added reads as zeros. A
	// file that has this size is no error, and no file gets smaller. hv.ErrInUse if
	// QEMU has it open.
	Grow(ctx context.Context, img hv.Image, sizeBytes int64) error
	// Sync puts what another program has changed of an image on stable storage.
	Sync(ctx context.Context, path string) error
	// FreeBytes is how much a file in dir may still grow.
	FreeBytes(dir string) (int64, error)
	// MayWrite refuses an image in whose directory this program can write nothing.
	MayWrite(path string) error
	// Remove unlinks a file, durably. Absent is no error. A block device is
	// never removed.
	Remove(ctx context.Context, path string) error
}
