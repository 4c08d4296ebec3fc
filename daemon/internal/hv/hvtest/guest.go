// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"errors"
	"fmt"
	"maps"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Start starts a domain from its persistent definition, or from its managed save. It fails if an
// image is missing, another domain has it open, or OnStart refuses.
func (f *Fake) Start(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.start(id); err != nil {
		return fmt.Errorf("start domain %s: %w", id, err)
	}
	return nil
}

// Stop plays a guest that shuts down by itself.
func (f *Fake) Stop(id string) error { return f.end(id, false, "shutdown", "stopped") }

// Destroy plays a person who ends the domain with virsh, which kills a process that ends slowly.
func (f *Fake) Destroy(id string) error { return f.end(id, true, "stopped") }

// Crash plays a hypervisor process that dies.
func (f *Fake) Crash(id string) error {
	f.found(id)
	return f.end(id, true, "crashed", "stopped")
}

// CrashProcess is Crash for the domain with this process number, as in OpenFiles.
func (f *Fake) CrashProcess(pid int) error {
	id, err := f.DomainOfProcess(pid)
	if err != nil {
		return err
	}
	return f.Crash(id)
}

// DomainOfProcess returns the id of the domain with this process number.
func (f *Fake) DomainOfProcess(pid int) (id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, dom := range f.domains {
		if dom.State.Active() && firstPID+dom.Run == pid {
			return dom.ID, nil
		}
	}
	return "", fmt.Errorf("there is no process %d", pid)
}

// MoveAway plays a person who moves the guest live to another host, and keeps the definition here
// (virsh migrate --live --persistent).
func (f *Fake) MoveAway(id string) error {
	if err := f.end(id, false, "stopped"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err == nil {
		dom.Moved = true
	}
	return err
}

// end ends the domain's process. A killed process loses unflushed data. The jobs end with the
// process, and libvirt sends no event for them.
func (f *Fake) end(id string, killed bool, details ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.findActive(id)
	if err != nil {
		return err
	}
	if killed {
		f.loseUnflushed(dom, false)
	}
	f.kill(dom)
	for _, detail := range details {
		f.lifecycle(dom, detail)
	}
	return nil
}

func (f *Fake) loseUnflushed(dom *domain, host bool) {
	for _, j := range dom.jobs {
		j.lose(f.files[j.dst.Path], host)
	}
}

// Reboot plays a guest that restarts. The process and its jobs stay. Devices with a release
// request are gone afterwards, whatever the guest answered.
func (f *Fake) Reboot(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.findActive(id)
	if err != nil {
		return err
	}
	f.reboot(dom)
	return nil
}

// HostReboot ends every domain at once and starts the domains with Autostart. It returns the
// errors of failed starts.
func (f *Fake) HostReboot() error {
	f.mu.Lock()
	f.boots++
	for _, img := range f.files {
		img.before = img.written
	}
	var autostart []string
	for id, dom := range f.domains {
		f.loseUnflushed(dom, true)
		f.kill(dom)
		if dom.Autostart {
			autostart = append(autostart, id)
		}
	}
	f.mu.Unlock()
	var errs []error
	for _, id := range autostart {
		errs = append(errs, f.Start(id))
	}
	return errors.Join(errs...)
}

// PowerLoss is a HostReboot that resets the modification times of images to their values on stable
// storage.
func (f *Fake) PowerLoss() error {
	f.mu.Lock()
	for _, img := range f.files {
		img.written = img.kept
	}
	f.mu.Unlock()
	return f.HostReboot()
}

// BootID returns the id of the host's present boot.
func (f *Fake) BootID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint("boot ", f.boots)
}

// Save makes a managed save: the domain stops, and its next start uses the present chains.
func (f *Fake) Save(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	switch {
	case err != nil:
		return err
	case !dom.State.Active():
		return hv.ErrNotActive
	case len(dom.jobs) > 0:
		return fmt.Errorf("%w: domain has active block job", hv.ErrBusy)
	}
	saved, leaving := copyDisks(dom.Live), maps.Clone(dom.leaving)
	f.kill(dom)
	dom.ManagedSave, dom.saved, dom.savedLeaving = true, saved, leaving
	f.lifecycle(dom, "stopped")
	return nil
}

// SuspendByUser plays a person who pauses a domain with virsh.
func (f *Fake) SuspendByUser(id string) error { return f.setPaused(id, true) }

// ResumeByUser plays a person who resumes a domain with virsh.
func (f *Fake) ResumeByUser(id string) error { return f.setPaused(id, false) }

func (f *Fake) setPaused(id string, paused bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.findActive(id)
	if err != nil {
		return err
	}
	dom.byUser = paused
	f.pause(dom, paused, hv.PauseUser)
	return nil
}

// GuestWrite writes a block as the guest. Nil acknowledges the write, and AssertNoWriteLost then
// expects it. It returns ErrPaused if the domain is paused, or if this write pauses it because the
// image has no space.
func (f *Fake) GuestWrite(id, target string, block int64, value uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, disk, err := f.guestDisk(id, target)
	if err != nil {
		return err
	}
	if disk.ReadOnly {
		return fmt.Errorf("write disk %s of %s: it is read-only", target, id)
	}
	path := disk.Top().Path
	img, err := f.open(path)
	if err != nil {
		return err
	}
	if _, writers := f.countHolders(path); writers > 1 && !disk.Shareable {
		f.violate("%s was written with %d domains open for writing", path, writers)
	}
	if err := img.write(path, block+headerBlocks(disk.Top()), value); err != nil {
		if !errors.Is(err, errNoSpace) {
			return err
		}
		f.pause(dom, true, hv.PauseIOError)
		f.feed.Publish(hv.Event{
			Kind: hv.EventIOError, DomainID: id, Path: path, Detail: "enospc", Paused: true,
		})
		return fmt.Errorf("%w: %w", ErrPaused, err)
	}
	f.mirrorWrite(dom, disk, block, value)
	dom.noteDirty(target, block)
	dom.acked[target][block] = value
	st := dom.statsOf(target)
	st.WriteRequests++
	st.WriteBytes += BlockSize
	st.AllocationBytes = max(st.AllocationBytes, int64(len(img.blocks))*BlockSize)
	return nil
}

// SetIOThreads gives a domain I/O threads from now on.
func (f *Fake) SetIOThreads(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err == nil {
		dom.IOThreads = true
	}
	return err
}

// mirrorWrite reports a guest's write to a running job. A mirror with a failing target ends
// without the guest noticing. A blind job that still scans the disk never copies the write.
func (f *Fake) mirrorWrite(dom *domain, disk *hv.Disk, block int64, value uint64) {
	j := dom.jobs[disk.Target]
	if j == nil || j.scan > 0 && j.blind {
		return
	}
	if !j.synchronous || j.scan > 0 {
		j.dirty[block] = true
		return
	}
	to, err := f.open(j.dst.Path)
	if err == nil {
		err = j.write(to, block, value)
	}
	if err != nil {
		delete(dom.jobs, disk.Target)
		f.jobEvent(dom, disk, "failed")
		return
	}
	delete(j.dirty, block)
}

// GuestRead reads a block as the guest.
func (f *Fake) GuestRead(id, target string, block int64) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, disk, err := f.guestDisk(id, target)
	if err != nil {
		return 0, err
	}
	content, err := f.read(disk.Chain)
	if err != nil {
		return 0, err
	}
	st := dom.statsOf(target)
	st.ReadRequests++
	st.ReadBytes += BlockSize
	return content[block], nil
}

// AuthoritativeContent returns the content of the guest's disk: of the live chain if the domain is
// active, else of the chain for its next start.
func (f *Fake) AuthoritativeContent(id, target string) (map[int64]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.authoritative(id, target)
}

func (f *Fake) authoritative(id, target string) (map[int64]uint64, error) {
	dom, err := f.find(id)
	if err != nil {
		return nil, err
	}
	disk := dom.LiveDisk(target)
	if disk == nil {
		disk = dom.ConfigDisk(target)
	}
	if disk == nil {
		return nil, fmt.Errorf("%w: disk %s of %s", hv.ErrNotFound, target, id)
	}
	chain, err := f.startChain(*disk)
	if err != nil {
		return nil, err
	}
	return f.read(chain)
}

// Acknowledged returns the content that the guest may expect: the content when the domain was
// defined, and every write acknowledged since.
func (f *Fake) Acknowledged(id, target string) (map[int64]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err != nil {
		return nil, err
	}
	content := maps.Clone(dom.acked[target])
	maps.DeleteFunc(content, func(_ int64, value uint64) bool { return value == 0 })
	return content, nil
}
