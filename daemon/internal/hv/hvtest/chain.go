// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/medium"
)

// SetConfigChain implements hv.Hypervisor. Like libvirt it opens no file.
func (f *Fake) SetConfigChain(ctx context.Context, id, target string, chain []hv.Image) error {
	return f.call(ctx, "SetConfigChain", func() error {
		dom, err := f.find(id)
		if err != nil {
			return err
		}
		if !dom.Persistent {
			return fmt.Errorf("%w: the domain is transient", hv.ErrUnsupported)
		}
		disk := dom.ConfigDisk(target)
		if disk == nil {
			return fmt.Errorf("%w: disk %s of the definition", hv.ErrNotFound, target)
		}
		if err := checkChain(chain); err != nil {
			return err
		}
		if err := checkKind(disk, chain[0]); err != nil {
			return err
		}
		disk.Chain, disk.Terminated = slices.Clone(chain), true
		f.lifecycle(dom, "defined")
		return nil
	})
}

// checkKind refuses a disk with a setting that libvirt does not permit for an image like top.
func checkKind(disk *hv.Disk, top hv.Image) error {
	switch {
	case disk.StartupPolicy != "" && top.Type == hv.SourceNetwork:
		return fmt.Errorf("disk startupPolicy '%s' is not allowed for disk of 'network' type", disk.StartupPolicy)
	case disk.DiscardNoUnref && top.Format != Qcow2:
		return errors.New("'discard_no_unref' only works with qcow2 disk format")
	case disk.Shareable && !disk.ReadOnly && top.Format != Raw:
		return fmt.Errorf("shared access for disk '%s' requires use of supported storage format", disk.Target)
	}
	return nil
}

// Snapshot implements hv.Hypervisor.
func (f *Fake) Snapshot(ctx context.Context, id, target string, overlay hv.Image) (held time.Duration, err error) {
	return snapshotTime, f.PutOverlay(ctx, id, target, overlay)
}

// snapshotTime is how long a Snapshot holds back the writes of a guest.
const snapshotTime = 3 * time.Millisecond

// PutOverlay is Snapshot without the time that it takes.
func (f *Fake) PutOverlay(ctx context.Context, id, target string, overlay hv.Image) error {
	return f.call(ctx, "Snapshot", func() error {
		dom, disk, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		if err := f.checkSnapshot(dom, disk, overlay); err != nil {
			return err
		}
		below := disk.Top()
		continueBitmaps(f.files[below.Path], f.files[overlay.Path])
		disk.Chain = slices.Insert(disk.Chain, 0, overlay)
		// libvirt updates the definition too if it named the same top, and writes no explicit end
		// of the chain there.
		if config := dom.ConfigDisk(target); config != nil && config.Top() == below && dom.stale == nil {
			config.Chain = slices.Insert(config.Chain, 0, overlay)
		}
		return nil
	})
}

func (f *Fake) checkSnapshot(dom *domain, disk *hv.Disk, overlay hv.Image) error {
	if disk.Shareable {
		return fmt.Errorf("%w: shared access requires use of supported storage format", hv.ErrUnsupported)
	}
	if dom.jobs[disk.Target] != nil {
		return fmt.Errorf("%w: a block job runs on the disk", hv.ErrBusy)
	}
	if err := cmp.Or(dom.notInBackup(disk.Target), checkImage(overlay)); err != nil {
		return err
	}
	img, err := f.open(overlay.Path)
	if err != nil {
		return err
	}
	if readers, writers := f.countHolders(overlay.Path); readers+writers > 0 {
		if dom.stale != nil {
			return errDuplicate
		}
		return fmt.Errorf("snapshot into %s: %w", overlay.Path, ErrLocked)
	}
	// libvirt and QEMU would accept any file here. The fake checks the contract of Snapshot.
	top := f.files[disk.Top().Path]
	f.checkClear(disk.Top(), overlay)
	if err := img.decrypt(overlay); err != nil {
		return err
	}
	switch {
	case img.format != overlay.Format || img.format != Qcow2:
		return fmt.Errorf("overlay %s is a %s image", overlay.Path, img.format)
	case img.backing.Path != disk.Top().Path || img.backing.Format != disk.Top().Format || img.backing.LUKSSecret != disk.Top().LUKSSecret:
		return fmt.Errorf("overlay %s lies over %s, not over %s", overlay.Path, img.backing.Path, disk.Top().Path)
	case img.size != sizeOf(disk.Top(), top):
		return fmt.Errorf("overlay %s has %d bytes, not %d", overlay.Path, img.size, sizeOf(disk.Top(), top))
	case len(img.blocks) > 0:
		return fmt.Errorf("overlay %s is not empty", overlay.Path)
	}
	return nil
}

// startChain returns the chain that a start of the disk would use: the definition's chain,
// continued from the headers if it is not terminated.
func (f *Fake) startChain(disk hv.Disk) ([]hv.Image, error) {
	chain := slices.Clone(disk.Chain)
	if len(chain) == 0 || disk.Terminated {
		return chain, nil
	}
	last, err := f.open(chain[len(chain)-1].Path)
	if err != nil || last.backing.Path == "" {
		return chain, err
	}
	probed, err := f.headerChain(last.backing.Path)
	return append(chain, probed...), err
}

func checkChain(chain []hv.Image) error {
	if len(chain) == 0 {
		return errors.New("the chain is empty")
	}
	for _, img := range chain {
		if err := checkImage(img); err != nil {
			return err
		}
	}
	return nil
}

func checkImage(img hv.Image) error {
	if img.Path == "" || img.Format == "" || (img.Type != hv.SourceFile && img.Type != hv.SourceBlock && img.Type != hv.SourceNetwork) || (img.Type == hv.SourceNetwork) == medium.Of(img.Path).Path {
		return fmt.Errorf("%w: image %+v", hv.ErrUnsupported, img)
	}
	if img.SliceBytes != 0 && img.Format != Raw {
		return fmt.Errorf("%w: a slice of a %s image", hv.ErrUnsupported, img.Format)
	}
	return nil
}

func (f *Fake) expect(dom *domain, disk *hv.Disk) error {
	if dom.acked[disk.Target] != nil {
		return nil
	}
	chain, err := f.startChain(*disk)
	if err != nil {
		return err
	}
	content, err := f.read(chain)
	if err != nil {
		return err
	}
	dom.acked[disk.Target] = content
	return nil
}
