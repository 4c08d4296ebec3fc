// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
)

// sizes has the image's size, and the size that the running guest sees.
type sizes struct {
	image int64
	// dom has the volume, or is nil.
	dom *hv.Domain
	// guest is the disk's size in dom's process, if the process has the image.
	guest *int64
}

func (s sizes) are(bytes int64) bool {
	return s.image == bytes && (s.guest == nil || *s.guest == bytes)
}

// sizesNow reads the sizes, with errors typed for the runner.
func (e *env) sizesNow(ctx context.Context, in *resizeInput) (now sizes, err error) {
	info, err := e.inspect(ctx, in)
	if err != nil {
		return now, err
	}
	now.image = in.part().bytes(nil, info.SizeBytes)
	if in.InstanceID == "" {
		return now, nil
	}
	dom, err := e.Guests.Domain(ctx, in.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return now, nil // it was undefined
	}
	if err != nil {
		return now, request.HV(err)
	}
	now.dom, now.image = dom, in.part().bytes(dom, info.SizeBytes)
	if !in.has(dom) {
		return now, nil
	}
	stats, err := e.Guests.DiskStats(ctx, in.InstanceID, in.Device)
	if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
		return now, nil // it powered off
	}
	if err != nil {
		return now, request.HV(err)
	}
	now.guest = &stats.CapacityBytes
	return now, nil
}

// has reports whether a domain's process has exactly the volume's image as its disk.
func (in *resizeInput) has(dom *hv.Domain) bool {
	disk := dom.LiveDisk(in.Device)
	return disk != nil && in.checkDisk(disk, dom) == nil
}
