// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// errDuplicate is libvirt's answer where it makes once more what it does not know
// of.
var errDuplicate = errors.New("internal error: unable to execute QEMU command: Duplicate nodes with node-name='libvirt-2-storage'")

// GoStale freezes what the hypervisor reports of a domain's running disks and jobs until
// its process ends, whatever the process does from now on. A libvirtd that died inside a
// call does the same: it takes the chains from its status file and does not ask QEMU.
// OpenFiles still tells the truth. Jobs that the process does not have any more are
// noticed.
func (f *Fake) GoStale(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.findActive(id)
	if err != nil {
		return err
	}
	if dom.stale != nil {
		return nil
	}
	dom.stale = &staleView{live: copyDisks(dom.Live), jobs: map[string]bool{}}
	for target := range dom.jobs {
		dom.stale.jobs[target] = true
	}
	return nil
}

// Lose makes the hypervisor report a domain as stopped while its process goes on, and refuse
// what needs a process, until that ends: by Crash, as a person ends it. A libvirtd that comes
// back and does not understand its own status file does the same. OpenFiles still tells the
// truth.
func (f *Fake) Lose(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.findActive(id)
	if err != nil {
		return err
	}
	dom.stale = &staleView{lost: true}
	return nil
}

// found ends what Lose has begun.
func (f *Fake) found(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if dom := f.domains[id]; dom != nil && dom.lost() {
		dom.stale = nil
	}
}

// DieInside makes the hypervisor die inside the nth next call of this name: the call takes
// effect, its answer is lost, and from then on the hypervisor reports the domain as it was
// before (GoStale). Then is called once it is dead; it may be nil.
func (f *Fake) DieInside(id, call string, nth int, then func()) {
	f.Inject(Fault{Call: call, Nth: nth, Do: func() { _ = f.GoStale(id) }})
	f.Inject(Fault{Call: call, Nth: nth, After: true, Err: hv.ErrUnavailable, Do: then})
}

// SetOccupied sets whether a call on the domain's process is under way.
func (f *Fake) SetOccupied(id string, occupied bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err != nil {
		return err
	}
	dom.occupied = occupied && dom.State.Active()
	return nil
}

// knowsJob reports whether the hypervisor has the job of a live disk on record.
func (d *domain) knowsJob(target string) bool { return d.stale == nil || d.stale.jobs[target] }

// mayBeginJob refuses a second job on a live disk, in the words of a hypervisor that
// knows of the first, or of one that does not.
func (d *domain) mayBeginJob(target string) error {
	switch {
	case d.jobs[target] == nil:
		return d.notInBackup(target)
	case !d.knowsJob(target):
		return errDuplicate
	}
	return fmt.Errorf("%w: the disk is already in an active block job", hv.ErrBusy)
}

// notInBackup refuses what libvirt does not do to a disk while somebody has a backup of it.
func (d *domain) notInBackup(target string) error {
	if !d.backups[target] {
		return nil
	}
	return fmt.Errorf("%w: disk '%s' already in active block job", hv.ErrBusy, target)
}

// known refuses to attach or detach a live disk of which the hypervisor knows less
// than the process, or more.
func (d *domain) known(target string) error {
	has := d.LiveDisk(target) != nil
	if d.stale == nil || has == (findDisk(d.stale.live, target) != nil) {
		return nil
	}
	if has {
		return errDuplicate
	}
	return fmt.Errorf("internal error: unable to execute QEMU command 'device_del': Device %q not found", target)
}

// PausedByUser reports whether a person has paused the domain.
func (f *Fake) PausedByUser(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom := f.domains[id]
	return dom != nil && dom.byUser
}

// KeepWritable makes the domain's process keep images below its overlays open for writing,
// which is wrong.
func (f *Fake) KeepWritable(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err == nil {
		dom.thaws = true
	}
	return err
}
