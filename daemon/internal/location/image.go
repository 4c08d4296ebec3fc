// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Image is the image at a location as the hypervisor names it; block says that it is
// a block device.
func Image(l api.Location, block bool) hv.Image {
	img := hv.Image{Type: hv.SourceFile, Format: string(l.Format), Path: l.Path}
	if block {
		img.Type = hv.SourceBlock
	}
	return img
}

// SameImage says whether two paths name one file or device, by any link or
// device node. Paths at which there is nothing are the same if they are equal.
func SameImage(a, b string) bool {
	if a == b {
		return true
	}
	sa, errA := Stat(a)
	sb, errB := Stat(b)
	if errA != nil || errB != nil {
		return false
	}
	if sa.Mode&unix.S_IFMT == unix.S_IFBLK && sb.Mode&unix.S_IFMT == unix.S_IFBLK {
		return sa.Rdev == sb.Rdev
	}
	return sa.Dev == sb.Dev && sa.Ino == sb.Ino
}

// DiskOf finds the domain that names the image at path, anywhere in the chain of
// a disk, running or defined, and returns the name of the domain and the disk's
// target (vda). Both are empty if no domain does.
func DiskOf(doms []hv.Domain, path string) (domain, target string) {
	for i := range doms {
		for _, disks := range [][]hv.Disk{doms[i].Live, doms[i].Config} {
			for _, d := range disks {
				if Names(&d, path) {
					return doms[i].Name, d.Target
				}
			}
		}
	}
	return "", ""
}

// Names says whether a disk has the image at path anywhere in its chain, or a
// job that writes to it.
func Names(d *hv.Disk, path string) bool {
	for _, img := range d.Chain {
		if img.Path != "" && SameImage(img.Path, path) {
			return true
		}
	}
	return d.Mirror != nil && d.Mirror.Image.Path != "" && SameImage(d.Mirror.Image.Path, path)
}

// Processes is what Opens needs of a hypervisor.
type Processes interface {
	OpenFiles(ctx context.Context, id, path string) ([]hv.OpenFile, error)
}

// Opens says whether the process of a domain has the image at path: by the definition
// of what runs, or by the kernel's word. Its errors are those of the hypervisor.
func Opens(ctx context.Context, ps Processes, dom *hv.Domain, path string) (bool, error) {
	if !dom.State.Active() {
		return false, nil
	}
	for i := range dom.Live {
		if Names(&dom.Live[i], path) {
			return true, nil
		}
	}
	files, err := ps.OpenFiles(ctx, dom.ID, path)
	if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
		return false, nil // it went off meanwhile
	}
	return len(files) > 0, err
}
