// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
)

// sizes has the volume's size in its image, and the size that the running guest sees.
type sizes struct {
	image int64
	dom   *hv.Domain
	// guest is the disk's size in dom's process. It is nil if no process has the image.
	guest *int64
}

func (s sizes) are(bytes int64) bool {
	return s.image == bytes && (s.guest == nil || *s.guest == bytes)
}

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

func (in *resizeInput) has(dom *hv.Domain) bool {
	disk := dom.LiveDisk(in.Device)
	return disk != nil && in.checkDisk(disk, dom) == nil
}
