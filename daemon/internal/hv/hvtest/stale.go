// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// errDuplicate is libvirt's error when it repeats an action that its records lack.
var errDuplicate = errors.New("internal error: unable to execute QEMU command: Duplicate nodes with node-name='libvirt-2-storage'")

// GoStale freezes the hypervisor's report of a domain's running disks and jobs until its process
// ends. A libvirtd that died inside a call behaves like that: it takes the chains from its status
// file and does not ask QEMU. OpenFiles still returns the truth. The hypervisor still notices
// ended jobs.
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

// Lose makes the hypervisor report a domain as stopped while its process runs, and refuse calls
// that need a process, until the process ends (Crash). A restarted libvirtd that does not
// understand its own status file behaves like that. OpenFiles still returns the truth.
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

func (f *Fake) found(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if dom := f.domains[id]; dom != nil && dom.lost() {
		dom.stale = nil
	}
}

// DieInside makes the hypervisor die inside the nth next call of this name: the call takes effect,
// its answer is lost, and from then on the hypervisor reports the domain as before the call
// (GoStale). Afterwards DieInside calls then, unless it is nil.
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

func (d *domain) knowsJob(target string) bool { return d.stale == nil || d.stale.jobs[target] }

func (d *domain) mayBeginJob(target string) error {
	switch {
	case d.jobs[target] == nil:
		return d.notInBackup(target)
	case !d.knowsJob(target):
		return errDuplicate
	}
	return fmt.Errorf("%w: the disk is already in an active block job", hv.ErrBusy)
}

// notInBackup refuses an action that libvirt does not do during a backup of the disk.
func (d *domain) notInBackup(target string) error {
	if !d.backups[target] {
		return nil
	}
	return fmt.Errorf("%w: disk '%s' already in active block job", hv.ErrBusy, target)
}

// known refuses to attach or detach a live disk if the hypervisor's record differs from the
// process.
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

// KeepWritable makes the process keep images below its overlays open for writing, which is an
// error.
func (f *Fake) KeepWritable(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err == nil {
		dom.thaws = true
	}
	return err
}
