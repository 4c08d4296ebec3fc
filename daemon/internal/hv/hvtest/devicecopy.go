// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// OfferCopy lets a storage copy from one device to another, in ranges of whole blocks. The devices
// may be made later.
func (f *Fake) OfferCopy(src, dst string, sizeBytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.copies = append(f.copies, hv.DeviceCopy{
		Pool: "array", Src: hv.DeviceCopyEnd{Path: src, Identity: src}, Dst: hv.DeviceCopyEnd{Path: dst, Identity: dst},
		SizeBytes: sizeBytes, GranularityBytes: BlockSize, Offered: true,
	})
}

// FindDeviceCopy implements hv.Hypervisor.
func (f *Fake) FindDeviceCopy(ctx context.Context, src, dst string) (*hv.DeviceCopy, error) {
	var found *hv.DeviceCopy
	err := f.call(ctx, "FindDeviceCopy", func() error {
		for _, c := range f.copies {
			if c.Src.Path == src && c.Dst.Path == dst {
				found = &c
				return nil
			}
		}
		return fmt.Errorf("%w: no storage copies from %s to %s", hv.ErrNotFound, src, dst)
	})
	return found, err
}

// CopyDevice implements hv.Hypervisor.
func (f *Fake) CopyDevice(ctx context.Context, c hv.DeviceCopy, off, n int64) (until int64, err error) {
	err = f.call(ctx, "CopyDevice", func() error {
		if off%BlockSize != 0 || n%BlockSize != 0 || n <= 0 {
			f.violate("a storage was asked to copy %d bytes from %d on", n, off)
		}
		return f.copyBlocks(c.Src.Path, c.Dst.Path, off/BlockSize, n/BlockSize)
	})
	if err != nil {
		return 0, err
	}
	return off + n, nil
}
