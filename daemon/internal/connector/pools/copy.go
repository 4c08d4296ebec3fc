// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/hv"
)

// FindDeviceCopy implements hv.Hypervisor, with the first pool that has both volumes.
func (h *Host) FindDeviceCopy(ctx context.Context, src, dst string) (*hv.DeviceCopy, error) {
	none := fmt.Errorf("%w: no pool of a connector has both %s and %s", hv.ErrNotFound, src, dst)
	dir := filepath.Dir(src)
	if !strings.HasPrefix(src, "/dev/") || src == dst || filepath.Dir(dst) != dir {
		return nil, none
	}
	for _, pool := range slices.Sorted(maps.Keys(h.Connectors)) {
		p, err := h.known(ctx, pool)
		if err != nil || p.Directory != dir {
			continue // an unavailable pool does not offer copies
		}
		c, err := h.deviceCopyIn(ctx, pool, p, src, dst)
		if errors.Is(err, hv.ErrNotFound) {
			continue
		}
		return c, err
	}
	return nil, none
}

func (h *Host) deviceCopyIn(ctx context.Context, pool string, p connector.Pool, src, dst string) (*hv.DeviceCopy, error) {
	c := hv.DeviceCopy{Pool: pool, GranularityBytes: p.GranularityBytes, Offered: p.Can(connector.VerbCopy)}
	for path, end := range map[string]*hv.DeviceCopyEnd{src: &c.Src, dst: &c.Dst} {
		if connector.CheckVolumeName(filepath.Base(path)) != nil {
			return nil, fmt.Errorf("%w: pool %s has no volume of that name", hv.ErrNotFound, pool)
		}
		f, err := h.findIn(ctx, pool, p, filepath.Base(path))
		if err != nil {
			return nil, err
		}
		*end = hv.DeviceCopyEnd{Path: path, Identity: f.identity}
		if c.SizeBytes != 0 && c.SizeBytes != f.volume.CapacityBytes {
			c.Offered = false // the verb is for volumes of one size
		}
		c.SizeBytes = f.volume.CapacityBytes
	}
	return &c, nil
}

// CopyDevice implements hv.Hypervisor. It checks both devices in the kernel before and after.
func (h *Host) CopyDevice(ctx context.Context, c hv.DeviceCopy, off, n int64) (until int64, err error) {
	if err := h.sameDevices(c); err != nil {
		return 0, err
	}
	out, err := h.Run(ctx, c.Pool, connector.Request{
		Verb: connector.VerbCopy, OpID: opOf(ctx), Volume: filepath.Base(c.Dst.Path), Identity: c.Dst.Identity,
		Source:      &connector.Source{Volume: filepath.Base(c.Src.Path), Identity: c.Src.Identity, SizeBytes: c.SizeBytes},
		OffsetBytes: off, LengthBytes: n,
	})
	said := (*connector.Error)(nil)
	switch {
	case errors.As(err, &said):
		return 0, h.refusal(c.Pool, "copy to "+c.Dst.Path, err)
	case err != nil:
		return 0, fmt.Errorf("%w: pool %s: connector %s was to copy to %s: %w", hv.ErrNoAnswer, c.Pool, h.Connectors[c.Pool], c.Dst.Path, err)
	}
	if err := h.sameDevices(c); err != nil {
		return 0, fmt.Errorf("%w: %w", hv.ErrNoAnswer, err) // its answer concerns other devices
	}
	if until := out.CopiedToBytes; until != c.SizeBytes && until%c.GranularityBytes != 0 {
		return 0, fmt.Errorf("%w: %w", hv.ErrNoAnswer, h.untrue(c.Pool, fmt.Errorf("it says that it has copied to byte %d, which is no multiple of %d", until, c.GranularityBytes)))
	}
	return out.CopiedToBytes, nil
}

func (h *Host) sameDevices(c hv.DeviceCopy) error {
	for _, end := range []hv.DeviceCopyEnd{c.Src, c.Dst} {
		d, err := h.Look(end.Path)
		switch {
		case err != nil:
			return h.untrue(c.Pool, fmt.Errorf("look at %s in a copy: %w", end.Path, err))
		case d.Identity != end.Identity || d.SizeBytes != c.SizeBytes:
			return h.untrue(c.Pool, fmt.Errorf("%s was the device %q with %d bytes, and is %q with %d", end.Path, end.Identity, c.SizeBytes, d.Identity, d.SizeBytes))
		}
	}
	return nil
}
