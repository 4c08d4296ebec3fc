// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"fmt"
	"maps"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func (f *Fake) start(id string) error {
	if err := f.askHook(id, ""); err != nil {
		return err
	}
	dom, err := f.find(id)
	if err != nil {
		return err
	}
	if dom.State.Active() {
		return hv.ErrActive
	}
	disks := copyDisks(dom.Config)
	if dom.ManagedSave {
		disks = copyDisks(dom.saved)
	}
	if err := f.run(dom, disks); err != nil {
		return err
	}
	dom.Booted = !dom.ManagedSave
	maps.Copy(dom.leaving, dom.savedLeaving)
	dom.ManagedSave, dom.Moved, dom.saved, dom.savedLeaving = false, false, nil, nil
	f.lifecycle(dom, "started")
	return nil
}

func (f *Fake) run(dom *domain, disks []hv.Disk) (err error) {
	for i := range disks {
		disk := &disks[i]
		if disk.Chain, err = f.startChain(*disk); err != nil {
			return err
		}
		for i := range len(disk.Chain) - 1 {
			f.checkClear(disk.Chain[i+1], disk.Chain[i])
		}
		if err := f.checkOpen(disk); err != nil {
			return err
		}
		if err := f.expect(dom, disk); err != nil {
			return err
		}
		disk.Terminated = true
	}
	if err := f.takeLeases(dom, disks); err != nil {
		return err
	}
	dom.beganOn, dom.plugged = nil, map[string]bool{}
	for i := range disks {
		for _, img := range disks[i].Chain {
			dom.beganOn = append(dom.beganOn, img.Path)
		}
	}
	dom.Live, dom.State, dom.PauseReason = disks, hv.StateRunning, ""
	dom.qemu = f.about.QEMU
	f.makeRules(dom)
	f.runs++
	dom.Run, dom.Booted = f.runs, true
	dom.ownLimits = make(map[string]int64)
	dom.stats, dom.limits, dom.sizes = make(map[string]*hv.DiskStats), make(map[string]int64), make(map[string]int64)
	for i := range disks {
		if img := f.files[disks[i].Top().Path]; img != nil {
			dom.sizes[disks[i].Target] = sizeOf(disks[i].Top(), img)
		}
	}
	return nil
}

func (f *Fake) kill(dom *domain) {
	dom.Live, dom.Run, dom.State, dom.PauseReason, dom.byUser = nil, 0, hv.StateStopped, "", false
	dom.Booted = false
	clear(dom.jobs)
	clear(dom.backups)
	clear(dom.leaving)
	clear(dom.bitmaps)
	dom.asked, dom.reboots = 0, 0
	dom.stale, dom.occupied = nil, false
	dom.forget()
	if !dom.Persistent {
		delete(f.domains, dom.ID)
	}
}

func (f *Fake) pause(dom *domain, paused bool, reason hv.PauseReason) {
	switch {
	case paused && dom.State == hv.StateRunning:
		for _, j := range dom.jobs {
			j.flush()
		}
		dom.State, dom.PauseReason, dom.Booted = hv.StatePaused, reason, false
		f.lifecycle(dom, "suspended")
	case !paused && dom.State == hv.StatePaused:
		dom.State, dom.PauseReason = hv.StateRunning, ""
		f.lifecycle(dom, "resumed")
		f.answer(dom)
	}
}

// askHook calls OnStart, or OnStartToken for a start with a token. The hook may call the Fake, but
// changes of the domain's disks wait until the start is over, as in libvirt.
func (f *Fake) askHook(id, token string) error {
	dom, ask := f.domains[id], f.OnStart
	if token != "" && f.OnStartToken != nil {
		ask = func(id string) error { return f.OnStartToken(id, token) }
	}
	if ask == nil || dom == nil {
		return nil
	}
	f.awaitStart(dom)
	over := make(chan struct{})
	dom.starting = over
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		dom.starting = nil
		close(over)
	}()
	if err := ask(id); err != nil {
		return fmt.Errorf("%w: hook: %w", hv.ErrGuarded, err)
	}
	return nil
}

// awaitStart waits while a start of the domain is calling the hook. The caller holds mu.
func (f *Fake) awaitStart(dom *domain) {
	for dom.starting != nil {
		over := dom.starting
		f.mu.Unlock()
		<-over
		f.mu.Lock()
	}
}
