// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// Image returns the image at a location. block is true for a block device.
func Image(l api.Location, block bool) hv.Image {
	return hv.Image{
		Type: sourceType(medium.On(l.Path, block)), Format: string(l.Format), Path: l.Path,
		SliceBytes: l.SliceBytes(), LUKSSecret: l.LUKSSecret,
	}
}

func sourceType(kind medium.Kind) string {
	switch {
	case !kind.Path:
		return hv.SourceNetwork
	case kind.Filesystem:
		return hv.SourceFile
	}
	return hv.SourceBlock
}

// Chain returns the chain of a volume at a location, top first, with the stored base images of a
// linked clone.
func Chain(l api.Location, block bool) []hv.Image {
	chain := []hv.Image{Image(l, block)}
	for _, b := range l.Backing.Images() {
		chain = append(chain, Image(api.Location{Path: b.Path, Format: b.Format}, b.Block))
	}
	return chain
}

// OnChain reports whether a disk has this chain, which ends with so many base images. A definition
// that does not state the end of its chain may omit them: libvirt finds them in the headers, and
// their paths, from the headers, need not be clean.
func OnChain(d *hv.Disk, chain []hv.Image, bases int) bool {
	n := len(d.Chain)
	if n > len(chain) || n < len(chain)-bases || n == 0 || n < len(chain) && d.Terminated {
		return false
	}
	for i, img := range d.Chain {
		if i >= len(chain)-bases && img.Type != hv.SourceNetwork {
			img.Path = filepath.Clean(img.Path)
		}
		if img != chain[i] {
			return false
		}
	}
	return true
}

// Directory returns the directory that a process must traverse to reach the image at path. It is
// the socket's directory for an NBD export at a Unix socket, and / for another address.
func Directory(path string) string {
	if medium.Of(path).Remote {
		return "/"
	}
	if node, _, err := nodeOf(path); err == nil {
		path = node
	}
	return filepath.Dir(path)
}

// HasVolume reports whether a disk has exactly the chain of the volume at a location.
func HasVolume(d *hv.Disk, l api.Location, block bool) bool {
	chain := Chain(l, block)
	return OnChain(d, chain, len(chain)-1)
}

// DiskOf finds a domain with the image at path, or an overlapping image, anywhere in the chain of
// a disk, running or defined. It returns the domain's name and the disk's target (vda), or "". If
// it finds none, and cannot compare all images, it returns an error.
func DiskOf(doms []hv.Domain, path string) (domain, target string, err error) {
	place := PlaceOf(path)
	for i := range doms {
		for _, disks := range [][]hv.Disk{doms[i].Live, doms[i].Config} {
			for _, d := range disks {
				named, why := place.among(&d, place.Overlaps)
				if named {
					return doms[i].Name, d.Target, nil
				}
				if why != nil {
					err = errors.Join(err, fmt.Errorf("disk %s of instance %s: %w", d.Target, doms[i].Name, why))
				}
			}
		}
	}
	return "", "", err
}

// Names reports whether a disk has the image at path in its chain, or a job that writes to the
// image. An error means that the answer is unknown.
func Names(d *hv.Disk, path string) (bool, error) {
	return PlaceOf(path).NamedBy(d)
}

// NamedBy reports whether Names holds for the image of this place.
func (p Place) NamedBy(d *hv.Disk) (bool, error) { return p.among(d, p.Is) }

func (p Place) among(d *hv.Disk, is func(path string) (bool, error)) (bool, error) {
	images := d.Chain
	if d.Mirror != nil {
		images = append(slices.Clone(images), d.Mirror.Image)
	}
	var unknown error
	for _, img := range images {
		same, err := is(img.Path)
		if same {
			return true, nil
		}
		unknown = errors.Join(unknown, err)
	}
	below, err := p.leansOn(d)
	return below, errors.Join(unknown, err)
}

// Processes has the hypervisor's calls that Opens needs.
type Processes interface {
	OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error)
}

// Opens reports whether a domain's process has the image at path open, by its live definition or
// by /proc. It returns the hypervisor's errors.
func Opens(ctx context.Context, ps Processes, dom *hv.Domain, path string) (bool, error) {
	if !dom.State.Active() {
		return false, nil
	}
	place := PlaceOf(path)
	var unknown error
	for i := range dom.Live {
		named, err := place.NamedBy(&dom.Live[i])
		if named {
			return true, nil
		}
		unknown = errors.Join(unknown, err)
	}
	if !place.kind.Witnessed {
		return false, unknown // its callers are moves without addresses, so QEMU need not be queried
	}
	files, err := ps.OpenFiles(ctx, dom.ID, path)
	if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
		return false, nil
	}
	if err == nil && len(files) == 0 {
		err = unknown
	}
	return len(files) > 0, err
}
