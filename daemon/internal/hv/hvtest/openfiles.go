// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// firstFD is where the descriptors of images start.
const firstFD = 10

// OpenFiles implements hv.Hypervisor.
func (f *Fake) OpenFiles(ctx context.Context, id, path string) ([]hv.OpenFile, error) {
	var found []hv.OpenFile
	err := f.call(ctx, "OpenFiles", func() error {
		dom := f.domains[id]
		if dom == nil || !dom.State.Active() {
			return hv.ErrNotActive
		}
		if _, err := f.open(path); err != nil {
			return err
		}
		for i, h := range dom.holds() {
			if h.path == path {
				found = append(found, hv.OpenFile{FD: firstFD + i, Writable: h.writable})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// hold is one image that a process has open.
type hold struct {
	path     string
	writable bool
}

// holds lists what the domain's process has open: the chains with only their
// tops writable, and the targets of jobs. An image is opened once.
func (d *domain) holds() []hold {
	var holds []hold
	add := func(path string, writable bool) {
		for i := range holds {
			if holds[i].path == path {
				holds[i].writable = holds[i].writable || writable
				return
			}
		}
		holds = append(holds, hold{path, writable})
	}
	for _, disk := range d.Live {
		for depth, img := range disk.Chain {
			add(img.Path, depth == 0 && !disk.ReadOnly)
		}
		if j := d.jobs[disk.Target]; j != nil {
			add(j.dst.Path, true)
		}
	}
	return holds
}

// countHolders counts the processes that have an image open.
func (f *Fake) countHolders(path string) (readers, writers int) {
	for _, dom := range f.domains {
		for _, h := range dom.holds() {
			switch {
			case h.path != path:
			case h.writable:
				writers++
			default:
				readers++
			}
		}
	}
	return readers, writers
}
