// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// SetUnplug sets how the guest answers requests from now on. An open request stays open until it
// is repeated, or the guest is resumed.
func (f *Fake) SetUnplug(id string, how Unplug) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err != nil {
		return err
	}
	dom.unplug = how
	return nil
}

// ReleaseDevice plays a guest that finally releases a live disk. It returns an error without a
// request, or if the guest does not run.
func (f *Fake) ReleaseDevice(id, target string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, _, err := f.guestDisk(id, target)
	if err != nil {
		return err
	}
	if !dom.leaving[target] {
		return fmt.Errorf("release disk %s of %s: the guest was not asked to", target, id)
	}
	f.release(dom, target)
	return nil
}

// Leaving reports whether the guest has an unanswered request to release the disk.
func (f *Fake) Leaving(id, target string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom := f.domains[id]
	return dom != nil && dom.leaving[target]
}

// ownWay are the buses with disks that the hypervisor removes without the guest.
var ownWay = []string{"scsi", "usb"}

func (f *Fake) answer(dom *domain) {
	for _, target := range slices.Sorted(maps.Keys(dom.leaving)) {
		if slices.Contains(ownWay, dom.LiveDisk(target).Bus) {
			f.release(dom, target)
			continue
		}
		if dom.State != hv.StateRunning {
			continue
		}
		switch dom.unplug {
		case UnplugWaits:
		case UnplugRefuses:
			delete(dom.leaving, target)
			f.feed.Publish(hv.Event{Kind: hv.EventDeviceRemoved, DomainID: dom.ID, Detail: "failed"})
		case UnplugAtOnce, "":
			f.release(dom, target)
		}
	}
}

// release removes a disk from a process. libvirt forgets a job that began after the request, and
// QEMU continues it and keeps its images open until it ends.
func (f *Fake) release(dom *domain, target string) {
	if dom.jobs[target] != nil {
		f.violate("the guest of domain %s let go of disk %s while a block job ran on it", dom.Name, target)
	}
	dom.Live = slices.DeleteFunc(dom.Live, func(d hv.Disk) bool { return d.Target == target })
	delete(dom.leaving, target)
	delete(dom.jobs, target)
	delete(dom.bitmaps, target)
	delete(dom.stats, target)
	delete(dom.limits, target)
	delete(dom.ownLimits, target)
	dom.forget()
	f.makeRules(dom)
	f.feed.Publish(hv.Event{Kind: hv.EventDeviceRemoved, DomainID: dom.ID})
}
