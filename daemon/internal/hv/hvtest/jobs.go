// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/medium"
)

var errNoJob = errors.New("the disk does not have an active block job")

// BlockCopy implements hv.Hypervisor.
func (f *Fake) BlockCopy(ctx context.Context, id, target string, dst hv.Image, opts hv.BlockCopyOptions) error {
	return f.call(ctx, "BlockCopy", func() error {
		dom, disk, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		if err := checkImage(dst); err != nil {
			return err
		}
		if f.silent[dst.Path] {
			f.violate("a job began on %s of domain %s into %s, whose server does not answer: QEMU stands still until it does", target, dom.Name, dst.Path)
		}
		to, err := f.openForWrite(dst.Path)
		if err != nil {
			return err
		}
		if err := cmp.Or(dom.mayBeginJob(target), f.mayWrite(dom, dst.Path)); err != nil {
			return err
		}
		if to.format != dst.Format {
			return fmt.Errorf("open %s: it is %s and not %s", dst.Path, to.format, dst.Format)
		}
		f.checkClear(disk.Top(), dst)
		if len(opts.Backing) > 0 && to.backing != opts.Backing[0] {
			return fmt.Errorf("%s is over %v, not over %v", dst.Path, to.backing, opts.Backing)
		}
		if opts.Synchronous && len(opts.Backing) > 0 {
			f.violate("a synchronous job began on %s of domain %s into an image that libvirt puts over its base images in the pivot: what the guest writes of a part of a cluster hides the rest", target, dom.Name)
		}
		if err := to.decrypt(dst); err != nil {
			return err
		}
		top := f.files[disk.Top().Path]
		if sizeOf(dst, to) != sizeOf(disk.Top(), top) {
			f.jobEvent(dom, disk, "failed")
			return nil
		}
		// A person can always resume a guest after a caller has seen it paused.
		if opts.Synchronous && dom.IOThreads && dom.State == hv.StateRunning && dom.shown != hv.StatePaused && hv.JobStartOf(dom.qemu).KillsGuest {
			f.violate("a synchronous job began on %s of domain %s, which has I/O threads, with the guest running and writing: its process may end", target, dom.Name)
		}
		j := &job{
			kind: hv.JobCopy, dst: dst, backing: opts.Backing, synchronous: opts.Synchronous, bandwidth: opts.BandwidthBytesPerSecond,
			dirty: make(map[int64]bool), scan: scanLooks,
			// A full copy copies all of a raw image, even unallocated parts.
			blind: hv.JobStartOf(dom.qemu).LosesWrites && (len(disk.Chain) > 1 || disk.Top().Format != Raw),
		}
		if opts.Shallow && len(disk.Chain) > 1 {
			j.mark(top.guestBlocks(disk.Top()))
		} else {
			j.whole = true
			// QEMU's full copy first zeroes the target. A shallow copy of a disk without a backing
			// image silently becomes a full copy.
			maps.DeleteFunc(to.blocks, func(block int64, _ uint64) bool {
				return block >= headerBlocks(dst) && within(dst, to, block-headerBlocks(dst))
			})
			content, err := f.read(disk.Chain)
			if err != nil {
				return err
			}
			j.mark(content)
		}
		dom.jobs[target] = j
		return nil
	})
}

// CommitActive implements hv.Hypervisor.
func (f *Fake) CommitActive(ctx context.Context, id, target string, bytesPerSecond int64) error {
	return f.call(ctx, "CommitActive", func() error {
		dom, disk, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		if err := dom.mayBeginJob(target); err != nil {
			return err
		}
		if len(disk.Chain) < 2 {
			return fmt.Errorf("%w: the disk has no backing image to commit into", hv.ErrUnsupported)
		}
		if _, err := f.open(disk.Chain[1].Path); err != nil {
			return err
		}
		if err := f.mayWrite(dom, disk.Chain[1].Path); err != nil {
			return err
		}
		j := &job{
			kind: hv.JobActiveCommit, dst: disk.Chain[1], bandwidth: bytesPerSecond, dirty: make(map[int64]bool),
			scan: scanLooks, blind: hv.JobStartOf(dom.qemu).LosesWrites,
		}
		j.mark(f.files[disk.Top().Path].guestBlocks(disk.Top()))
		dom.jobs[target] = j
		return nil
	})
}

// Job implements hv.Hypervisor.
func (f *Fake) Job(ctx context.Context, id, target string) (*hv.Job, error) {
	var found *hv.Job
	err := f.call(ctx, "Job", func() error {
		if _, err := f.look(id); err != nil {
			return err
		}
		dom, _, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		if dom.backups[target] {
			found = &hv.Job{Kind: hv.JobBackup, End: 1}
		}
		if j := dom.jobs[target]; j != nil && dom.knowsJob(target) {
			found = &hv.Job{
				Kind:                    j.kind,
				Current:                 j.copied * BlockSize,
				End:                     (j.copied+int64(len(j.dirty)))*BlockSize + j.behind,
				BandwidthBytesPerSecond: j.bandwidth,
				Tracking:                j.scan == 0,
			}
			if j.scan > 0 {
				found.Current, found.End = 0, 1
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// SetJobBandwidth implements hv.Hypervisor.
func (f *Fake) SetJobBandwidth(ctx context.Context, id, target string, bytesPerSecond int64) error {
	return f.call(ctx, "SetJobBandwidth", func() error {
		dom, _, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		if dom.jobs[target] == nil {
			return errNoJob
		}
		dom.jobs[target].bandwidth = bytesPerSecond
		return nil
	})
}

// Pivot implements hv.Hypervisor.
func (f *Fake) Pivot(ctx context.Context, id, target string) error {
	return f.call(ctx, "Pivot", func() error {
		dom, disk, err := f.liveDisk(id, target)
		if err != nil {
			return err
		}
		j := dom.jobs[target]
		if j == nil || !dom.knowsJob(target) {
			return errNoJob
		}
		if !j.ready {
			return hv.ErrNotReady
		}
		// QEMU drains: it copies the dirty blocks before the switch.
		if err := f.copyDirty(disk, j, len(j.dirty)); err != nil {
			delete(dom.jobs, target)
			f.jobEvent(dom, disk, "failed")
			return err
		}
		old, copied := disk.Top(), disk.Chain[:1]
		if j.whole {
			copied = disk.Chain
		}
		f.joinBitmaps(copied, f.files[j.dst.Path])
		disk.Chain = j.after(disk.Chain)
		if config := dom.ConfigDisk(target); config != nil && config.Top() == old && dom.stale == nil {
			config.Chain = j.after(config.Chain)
		}
		delete(dom.jobs, target)
		f.jobEvent(dom, disk, "completed")
		return nil
	})
}

// AbortJob implements hv.Hypervisor.
func (f *Fake) AbortJob(ctx context.Context, id, target string) error {
	return f.call(ctx, "AbortJob", func() error {
		dom, disk, err := f.liveDisk(id, target)
		if errors.Is(err, hv.ErrNotActive) {
			return nil
		}
		if err == nil && dom.backups[target] {
			f.violate("a backup that somebody else began of %s of domain %s was ended", target, dom.Name)
			delete(dom.backups, target)
		}
		if err != nil || dom.jobs[target] == nil || !dom.knowsJob(target) {
			return err
		}
		if dom.jobs[target].synchronous && dom.State == hv.StateRunning {
			f.violate("the synchronous job on %s of domain %s was aborted with the guest running and writing: its process may end", target, dom.Name)
		}
		if j := dom.jobs[target]; j.ready && j.behind > soon && dom.State == hv.StatePaused {
			f.violate("the job on %s of domain %s was aborted with the guest paused and %d bytes left, which are copied first", target, dom.Name, j.behind)
		}
		delete(dom.jobs, target)
		f.jobEvent(dom, disk, "canceled")
		return nil
	})
}

// EndConnections implements hv.Hypervisor. In memory only jobs have connections to a server.
func (f *Fake) EndConnections(ctx context.Context, id, address string) error {
	return f.call(ctx, "EndConnections", func() error {
		dom, err := f.findActive(id)
		if err != nil {
			return err
		}
		for i := range dom.Live {
			disk := &dom.Live[i]
			if medium.Of(address).Severable && slices.ContainsFunc(disk.Chain, func(img hv.Image) bool { return img.Path == address }) {
				f.violate("the connections of domain %s to %s were ended, where its guest has disk %s", dom.Name, address, disk.Target)
			}
			if j := dom.jobs[disk.Target]; j != nil && j.dst.Path == address && medium.Of(address).Severable {
				f.breakJob(dom, disk)
			}
		}
		return nil
	})
}

// SetSilent makes the server of an address stop answering, or answer again. QEMU would hang in a
// suspend, or at the start of a job there.
func (f *Fake) SetSilent(address string, silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent == nil {
		f.silent = map[string]bool{}
	}
	f.silent[address] = silent
}

// Silent reports whether the server of an address does not answer.
func (f *Fake) Silent(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.silent[address]
}

// SetStep sets by how many blocks a look advances each job; with 0 only Step advances jobs.
func (f *Fake) SetStep(blocksPerLook int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.perLook = blocksPerLook
}

// soon is the largest backlog in bytes that does not delay the end of a job. behindPerBlock is how
// many bytes of its backlog a job copies instead of a block.
const soon, behindPerBlock = 16 << 20, 1 << 20

// SetBehind adds a backlog of this many bytes, without blocks, to the job on a live disk.
func (f *Fake) SetBehind(id, target string, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, _, err := f.liveDisk(id, target)
	if err == nil && dom.jobs[target] == nil {
		err = errNoJob
	}
	if err == nil {
		dom.jobs[target].behind = bytes
	}
	return err
}

// Step advances every job by this many blocks, and lets every guest follow its requests.
func (f *Fake) Step(blocks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, dom := range f.domains {
		f.obey(dom)
		for _, j := range dom.jobs {
			j.scan = 0
		}
		f.advance(dom, blocks)
	}
}

// BreakJob makes the job on a live disk fail, as an error of its target does.
func (f *Fake) BreakJob(id, target string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, disk, err := f.liveDisk(id, target)
	if err != nil {
		return err
	}
	f.breakJob(dom, disk)
	return nil
}

func (f *Fake) breakJob(dom *domain, disk *hv.Disk) {
	delete(dom.jobs, disk.Target)
	f.jobEvent(dom, disk, "failed")
}

func (f *Fake) advance(dom *domain, blocks int) {
	if blocks == 0 {
		return
	}
	for target, j := range dom.jobs {
		if f.silent[j.dst.Path] {
			continue
		}
		if j.scan > 0 {
			j.scan--
			continue
		}
		j.behind = max(0, j.behind-int64(blocks)*behindPerBlock)
		disk := dom.LiveDisk(target)
		if err := f.copyDirty(disk, j, blocks); err != nil {
			delete(dom.jobs, target)
			f.jobEvent(dom, disk, "failed")
			continue
		}
		if len(j.dirty) == 0 && !j.ready {
			j.flush()
			j.ready = true
			f.jobEvent(dom, disk, "ready")
		}
	}
}

func (f *Fake) copyDirty(disk *hv.Disk, j *job, blocks int) error {
	if blocks == 0 || len(j.dirty) == 0 {
		return nil
	}
	to, err := f.open(j.dst.Path)
	if err != nil {
		return err
	}
	content, err := f.read(disk.Chain)
	if err != nil {
		return err
	}
	for _, block := range slices.Sorted(maps.Keys(j.dirty)) {
		if blocks == 0 {
			break
		}
		if err := j.write(to, block, content[block]); err != nil {
			return err
		}
		delete(j.dirty, block)
		j.copied++
		blocks--
	}
	return nil
}

func (f *Fake) jobEvent(dom *domain, disk *hv.Disk, detail string) {
	if detail != "ready" {
		f.makeRules(dom)
	}
	f.feed.Publish(hv.Event{Kind: hv.EventBlockJob, DomainID: dom.ID, Path: disk.Top().Path, Detail: detail})
}

// look finds a domain and lets time pass: its guest follows its requests, and its jobs advance.
func (f *Fake) look(id string) (*domain, error) {
	dom, err := f.find(id)
	if err != nil {
		return nil, err
	}
	if dom.lost() && !dom.Persistent {
		return nil, fmt.Errorf("%w: domain %s", hv.ErrNotFound, id) // only its process exists
	}
	f.obey(dom)
	f.advance(dom, f.perLook)
	return f.find(id)
}
