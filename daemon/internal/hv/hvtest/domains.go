// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// defaultPerLook is how many blocks a job copies at each look: few, so that tests see unready
// jobs.
const defaultPerLook = 2

// New returns a connected Fake without domains.
func New() *Fake {
	f := &Fake{
		Images:  newImages(),
		domains: make(map[string]*domain),
		pools:   make(map[string]*hv.PoolInfo),
		extents: make(map[string]int64),
		nvram:   make(map[string][]byte),
		denied:  make(map[string]string),
		perLook: defaultPerLook,
		about:   hv.About{QEMU: hv.Version{Major: 7, Minor: 2}},
	}
	f.holders = f.countHolders
	f.feed.Publish(hv.Event{Kind: hv.EventConnected})
	return f
}

// Define adds a persistent domain that is off. It uses only the identity, Autostart, MemoryBytes,
// Config and the counts of snapshots and checkpoints of d; each disk's images must exist.
func (f *Fake) Define(d hv.Domain) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.domains[d.ID] != nil {
		return fmt.Errorf("define domain %s: it is there already", d.ID)
	}
	dom := newDomain(d)
	for i := range dom.Config {
		disk := &dom.Config[i]
		if err := f.expect(dom, disk); err != nil {
			return fmt.Errorf("define domain %s: %w", d.ID, err)
		}
		if disk.Address == "" {
			disk.Address = freeAddress(dom.Config, disk.Bus)
		}
	}
	f.domains[d.ID] = dom
	f.lifecycle(dom, "defined")
	return nil
}

func newDomain(d hv.Domain) *domain {
	return &domain{
		Domain: hv.Domain{
			ID: d.ID, Name: d.Name, State: hv.StateStopped, Persistent: true, Autostart: d.Autostart,
			MemoryBytes: d.MemoryBytes,
			Snapshots:   d.Snapshots, Checkpoints: d.Checkpoints, Config: copyDisks(d.Config),
		},
		jobs:    make(map[string]*job),
		acked:   make(map[string]map[int64]uint64),
		leaving: make(map[string]bool),
		bitmaps: make(map[string][]*bitmap),
	}
}

// Undefine removes the definition: an active domain becomes a transient one.
func (f *Fake) Undefine(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err != nil {
		return err
	}
	dom.Persistent, dom.Autostart, dom.ManagedSave, dom.Config, dom.saved, dom.savedLeaving = false, false, false, nil, nil, nil
	if !dom.State.Active() {
		delete(f.domains, id)
	}
	f.lifecycle(dom, "undefined")
	return nil
}

// Redefine gives an existing domain a definition with these disks, as virsh define does: a
// transient domain becomes persistent.
func (f *Fake) Redefine(id string, disks []hv.Disk) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err != nil {
		return err
	}
	dom.Persistent, dom.Config = true, copyDisks(disks)
	f.lifecycle(dom, "defined")
	return nil
}

// Domains implements hv.Hypervisor.
func (f *Fake) Domains(ctx context.Context) ([]hv.Domain, error) {
	var all []hv.Domain
	err := f.call(ctx, "Domains", func() error {
		var unreadable hv.Unreadable
		for _, id := range slices.Sorted(maps.Keys(f.domains)) {
			if err := f.unreadable[id]; err != nil {
				unreadable.Domains = append(unreadable.Domains, hv.UnreadableDomain{ID: id, Name: f.domains[id].Name, Err: err})
			} else if dom, err := f.look(id); err == nil {
				view := dom.view()
				view.Files = filesOf(view.Live, view.Config)
				all = append(all, view)
			}
		}
		if len(unreadable.Domains) > 0 {
			return &unreadable
		}
		return nil
	})
	return all, err
}

// MakeUnreadable makes Domain fail for this domain with err, and Domains omit it; nil undoes that.
func (f *Fake) MakeUnreadable(id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unreadable == nil {
		f.unreadable = map[string]error{}
	}
	f.unreadable[id] = err
}

// Domain implements hv.Hypervisor.
func (f *Fake) Domain(ctx context.Context, id string) (*hv.Domain, error) {
	var view hv.Domain
	err := f.call(ctx, "Domain", func() error {
		if err := f.unreadable[id]; err != nil {
			return err
		}
		dom, err := f.look(id)
		if err != nil {
			return err
		}
		view = dom.view()
		dom.shown = view.State
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &view, nil
}

// RunState implements hv.Hypervisor.
func (f *Fake) RunState(ctx context.Context, id string) (state hv.RunState, err error) {
	err = f.call(ctx, "RunState", func() error {
		dom, err := f.look(id)
		if err != nil {
			return err
		}
		v := dom.view()
		dom.shown = v.State
		state = hv.RunState{State: v.State, PauseReason: v.PauseReason, Occupied: v.Occupied}
		return nil
	})
	return state, err
}

// TopImage implements hv.Hypervisor.
func (f *Fake) TopImage(ctx context.Context, id, target string) (path string, err error) {
	err = f.call(ctx, "TopImage", func() error {
		dom, err := f.look(id)
		if err != nil {
			return err
		}
		v := dom.view()
		disk := v.ConfigDisk(target)
		if v.State.Active() {
			disk = v.LiveDisk(target)
		}
		if disk == nil {
			return fmt.Errorf("%w: disk %s of %s", hv.ErrNotFound, target, id)
		}
		path = disk.Top().Path
		return nil
	})
	return path, err
}

func (d *domain) view() hv.Domain {
	v := d.Domain
	v.Occupied = d.occupied
	v.Live, v.Config = copyDisks(d.Live), copyDisks(d.Config)
	if d.stale != nil {
		v.Live = copyDisks(d.stale.live)
	}
	if d.lost() {
		v.Live, v.Run, v.State, v.PauseReason = nil, 0, hv.StateStopped, ""
	}
	for i := range v.Live {
		if j := d.jobs[v.Live[i].Target]; j != nil && d.knowsJob(v.Live[i].Target) {
			v.Live[i].Mirror = &hv.Mirror{Job: j.kind, Image: j.dst, Ready: j.ready}
		}
	}
	return v
}

func filesOf(all ...[]hv.Disk) (files []hv.DomainFile) {
	for _, disk := range slices.Concat(all...) {
		images := disk.Chain
		if disk.Mirror != nil {
			images = append(slices.Clone(images), disk.Mirror.Image)
		}
		for _, img := range images {
			file := hv.DomainFile{What: disk.Device + " " + disk.Target, Path: img.Path}
			if strings.HasPrefix(img.Path, "/") && !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files
}
