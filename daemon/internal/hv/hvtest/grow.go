// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// GrowDisk implements hv.Hypervisor.
func (f *Fake) GrowDisk(ctx context.Context, id, target string, sizeBytes int64) error {
	return f.call(ctx, "GrowDisk", func() error {
		dom, disk, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		if dom.jobs[target] != nil {
			return fmt.Errorf("%w: block device is in use by block job", hv.ErrBusy)
		}
		if err := dom.notInBackup(target); err != nil {
			return err
		}
		img, err := f.open(disk.Top().Path)
		if err != nil {
			return err
		}
		switch device := disk.Top().Type == hv.SourceBlock; {
		case disk.Top().SliceBytes != 0:
			return fmt.Errorf("%w: Cannot resize fixed-size raw disks", hv.ErrUnsupported)
		case device && sizeBytes > img.size:
			return fmt.Errorf("grow %s: cannot grow device files", disk.Top().Path)
		case device:
			dom.sizes[target] = img.size
		default:
			img.size, dom.sizes[target] = sizeBytes, sizeBytes
		}
		return nil
	})
}

// GrowImage makes an image larger, as a tool does. No process may have it open.
func (m *Images) GrowImage(path string, sizeBytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.openForWrite(path)
	if err == nil {
		img.size = sizeBytes
	}
	return err
}

// Extend makes a block device larger, as a volume group does, even if it is open.
func (m *Images) Extend(path string, sizeBytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	switch {
	case err != nil:
	case img.device != 0:
		img.device = sizeBytes
	default:
		img.size = sizeBytes
	}
	return err
}
