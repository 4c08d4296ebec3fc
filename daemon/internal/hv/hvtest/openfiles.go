// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/medium"
)

const (
	firstPID = 1000
	firstFD  = 10
)

// OpenFiles implements hv.Hypervisor.
func (f *Fake) OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error) {
	var found []hv.OpenFile
	err := f.call(ctx, "OpenFiles", func() error {
		dom := f.domains[id]
		if dom == nil || !dom.State.Active() {
			return hv.ErrNotActive
		}
		for _, path := range paths {
			if _, err := f.open(path); err != nil && medium.Of(path).Witnessed {
				return err
			}
			found = append(found, dom.has(path)...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// has returns the open files of the process for an image. For an address it returns the process's
// own answer, if it can be queried.
func (d *domain) has(path string) (found []hv.OpenFile) {
	pid := firstPID + d.Run
	witnessed := medium.Of(path).Witnessed
	if !witnessed && d.lost() {
		return []hv.OpenFile{{Path: path, PID: pid, Writable: true}}
	}
	if !witnessed {
		for i, h := range d.opens() {
			if h.path == path {
				found = append(found, hv.OpenFile{Path: path, PID: pid, Node: fmt.Sprintf("libvirt-%d-storage", i), Writable: h.writable})
			}
		}
		return found
	}
	for i, h := range d.holds() {
		if h.path == path {
			found = append(found, hv.OpenFile{Path: path, PID: pid, FD: firstFD + i, Writable: h.writable})
		}
	}
	return found
}

// Process implements hv.Hypervisor.
func (f *Fake) Process(ctx context.Context, id, target string) (p hv.Process, err error) {
	err = f.call(ctx, "Process", func() error {
		dom := f.domains[id]
		if dom == nil || !dom.State.Active() {
			return hv.ErrNotActive
		}
		p = hv.Process{ID: strconv.Itoa(dom.Run), Images: slices.Clone(dom.beganOn)}
		if disk := dom.LiveDisk(target); disk != nil {
			p.Kept = !dom.plugged[target] && slices.Contains(dom.beganOn, disk.Top().Path)
		}
		return nil
	})
	return p, err
}

// QEMUVersion implements hv.Hypervisor: it is About's version at the start of the domain.
func (f *Fake) QEMUVersion(ctx context.Context, id string) (v hv.Version, err error) {
	err = f.call(ctx, "QEMUVersion", func() error {
		dom := f.domains[id]
		if dom == nil || !dom.State.Active() {
			return hv.ErrNotActive
		}
		v = dom.qemu
		return nil
	})
	return v, err
}

// QEMUUser implements hv.Hypervisor: the fake runs as root.
func (f *Fake) QEMUUser(ctx context.Context, id string) (hv.ProcessUser, error) {
	return hv.ProcessUser{}, f.call(ctx, "QEMUUser", func() error {
		if id != "" && f.domains[id] == nil {
			return hv.ErrNotFound
		}
		return nil
	})
}

// hold is one open image of a process. shared permits concurrent writers.
type hold struct {
	path     string
	writable bool
	shared   bool
}

func (d *domain) opens() []hold {
	var opens []hold
	for i := range d.Live {
		for depth, h := range opensOf(&d.Live[i]) {
			h.writable = h.writable || depth > 0 && d.thaws
			opens = append(opens, h)
		}
		if j := d.jobs[d.Live[i].Target]; j != nil {
			opens = append(opens, hold{path: j.dst.Path, writable: true})
		}
	}
	return append(opens, d.notClosed()...)
}

// notClosed returns the images that the process has left in a pivot and still has open: the
// hypervisor died before it closed them.
func (d *domain) notClosed() []hold {
	if d.stale == nil {
		return nil
	}
	var left []hold
	for i := range d.stale.live {
		was := &d.stale.live[i]
		now := d.LiveDisk(was.Target)
		if now == nil {
			continue
		}
		left = append(left, slices.DeleteFunc(opensOf(was), func(h hold) bool {
			return slices.ContainsFunc(now.Chain, func(img hv.Image) bool { return img.Path == h.path })
		})...)
	}
	return left
}

func opensOf(disk *hv.Disk) []hold {
	var opens []hold
	for depth, img := range disk.Chain {
		opens = append(opens, hold{path: img.Path, writable: depth == 0 && !disk.ReadOnly, shared: disk.Shareable})
	}
	return opens
}

func (d *domain) holds() []hold {
	var holds []hold
	for _, h := range d.opens() {
		i := slices.IndexFunc(holds, func(other hold) bool { return other.path == h.path })
		if i < 0 {
			holds = append(holds, h)
			continue
		}
		holds[i].writable = holds[i].writable || h.writable
	}
	return holds
}

// checkOpen refuses a disk as QEMU does: if an image is absent, differs from the definition, or is
// locked. A writer and a process that does not share exclude each other, whichever came first.
func (f *Fake) checkOpen(disk *hv.Disk) error {
	for _, mine := range opensOf(disk) {
		if _, err := f.open(mine.path); err != nil {
			return err
		}
		for _, dom := range f.domains {
			for _, other := range dom.opens() {
				if other.path == mine.path && isLocked(mine.path) && (mine.writable && !other.shared || other.writable && !mine.shared) {
					return fmt.Errorf("open %s: %w", mine.path, ErrLocked)
				}
			}
		}
	}
	_, err := f.read(disk.Chain)
	return err
}

// Clients counts the clients of the server at an address: each node of a process is one.
func (f *Fake) Clients(address string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, dom := range f.domains {
		for _, h := range dom.opens() {
			if h.path == address {
				n++
			}
		}
	}
	return n
}

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

// About implements hv.Hypervisor.
func (f *Fake) About(ctx context.Context) (about hv.About, err error) {
	err = f.call(ctx, "About", func() error {
		about = f.about
		return nil
	})
	return about, err
}

// Answers implements hv.Hypervisor.
func (f *Fake) Answers(ctx context.Context) error {
	return f.call(ctx, "Answers", func() error { return nil })
}

// SetAbout sets what About returns.
func (f *Fake) SetAbout(about hv.About) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.about = about
}

// HookRefuses implements hv.Hypervisor.
func (f *Fake) HookRefuses(ctx context.Context, id string) (refused bool, err error) {
	err = f.call(ctx, "HookRefuses", func() error {
		refused = f.OnStart != nil && f.OnStart(id) != nil
		return nil
	})
	return refused, err
}
