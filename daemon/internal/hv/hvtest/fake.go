// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// ErrPaused is the error of a guest's write or read while its domain is paused: the guest
// waits until it can be carried out.
var ErrPaused = errors.New("the domain is paused")

var _ hv.Hypervisor = (*Fake)(nil)

// Fake is a hypervisor in memory, on images that behave as images do: a
// snapshot freezes what is below, a mirror copies block by block while the
// guest writes, a stale overlay shadows newer data. It also plays the guest,
// the person with virsh, and every kind of failure. It is safe for concurrent
// use. Jobs advance only when somebody looks (Domain, Domains, Job) or calls
// Step.
type Fake struct {
	*Images

	// OnStart, if set, is called before a domain starts, whoever starts it, as libvirt's
	// hook is; an error refuses the start. Set it before use.
	OnStart func(domainID string) error
	// OnStartToken, if set, is called instead of OnStart before a restore that has a start
	// token.
	OnStartToken func(domainID, token string) error

	feed    hv.Feed
	domains map[string]*domain
	pools   map[string]*hv.PoolInfo
	extents map[string]int64 // of pools that round
	perLook int              // blocks that a look advances a job
	faults  []*Fault
	calls   []string
	runs    int // processes that were ever started
	boots   int // of the host
	about   hv.About
	nvram   map[string][]byte // files, which outlive their domains
	denied  map[string]string // files with the rules that deny to write to the images at these paths
	// unreadable are the errors of domains that cannot be read.
	unreadable map[string]error
	// targets are the volumes of targets by path, with what they hold; those that are connected
	// are among the images.
	targets map[string]*image
	// copies are the copies that a storage offers.
	copies []hv.DeviceCopy
	// clones are the images of volumes that are linked clones.
	clones map[string]bool
	// silent are the addresses of exports whose servers answer nobody.
	silent map[string]bool
	locks  locks
}

// locks is the lock manager of the hypervisor. The leases of its own domains follow from what they
// do: a running domain has those of the images that its disks write to, and every active one those
// that its jobs write to.
type locks struct {
	on bool
	// why nothing may be switched, empty if it may.
	why string
	// elsewhere are the images of which domains of other hosts have the lease.
	elsewhere map[string]bool
}

// domain is the state of one domain.
type domain struct {
	hv.Domain // Live and Config without mirrors
	jobs      map[string]*job
	backups   map[string]bool // by target, those that somebody has begun
	saved     []hv.Disk       // what a managed save would start with
	acked     map[string]map[int64]uint64
	// beganOn are the images that its process was started with, plugged the disks that it
	// was given since.
	beganOn []string
	plugged map[string]bool
	// bitmaps are the dirty bitmaps of its live disks, by target.
	bitmaps map[string][]*bitmap
	// saving: its RAM is being written for somebody who has died.
	saving bool
	// qemu is the version of its process.
	qemu   hv.Version
	stats  map[string]*hv.DiskStats
	limits map[string]int64
	// ownLimits are the ones of them that the owner has set last.
	ownLimits map[string]int64
	// sizes are those that the process gives its disks, if it has been told.
	sizes map[string]int64
	// shown is the state in which a caller has seen it last.
	shown hv.State
	// byUser: a person paused it, so that being paused is as it should be.
	byUser bool
	// unplug is how the guest answers a request to let go of a disk; leaving
	// are the live disks whose request it has not answered.
	unplug  Unplug
	leaving map[string]bool
	// savedLeaving is leaving of the process whose RAM is in the managed save image.
	savedLeaving map[string]bool
	// shutdown is how the guest takes requests to shut down or, if thenReboot, to
	// reboot, of which it has asked open ones.
	shutdown   Shutdown
	asked      int
	thenReboot bool
	reboots    int
	// starting is closed when the hook has answered a start, nil if it is not asked.
	starting chan struct{}
	// leansOn is what of its host the domain needs, see SetLeansOn.
	leansOn string
	// stale is what the hypervisor goes on to report of the process, nil if that is
	// the truth; see GoStale. occupied is Domain.Occupied.
	stale    *staleView
	occupied bool
	thaws    bool // see KeepWritable
}

// staleView is what a hypervisor believes that died between the action of the
// process and the record of it.
type staleView struct {
	live []hv.Disk
	jobs map[string]bool // the disks whose job it has on record
	lost bool            // it has no process on record
}

// lost reports whether the hypervisor does not have the process of the domain any more.
func (d *domain) lost() bool { return d.stale != nil && d.stale.lost }

// Up implements hv.Hypervisor.
func (f *Fake) Up() bool { return f.feed.Up() }

// Events implements hv.Hypervisor.
func (f *Fake) Events(ctx context.Context) <-chan hv.Event { return f.feed.Subscribe(ctx) }

func copyDisks(disks []hv.Disk) []hv.Disk {
	out := slices.Clone(disks)
	for i := range out {
		out[i].Chain = slices.Clone(out[i].Chain)
		out[i].Mirror = nil
	}
	return out
}

func (f *Fake) find(id string) (*domain, error) {
	dom := f.domains[id]
	if dom == nil {
		return nil, fmt.Errorf("%w: domain %s", hv.ErrNotFound, id)
	}
	return dom, nil
}

// findActive finds a domain that has a process.
func (f *Fake) findActive(id string) (*domain, error) {
	dom, err := f.find(id)
	if err == nil && (!dom.State.Active() || dom.lost()) {
		err = hv.ErrNotActive
	}
	if err != nil {
		return nil, err
	}
	return dom, nil
}

// liveDisk finds a disk of an active domain.
func (f *Fake) liveDisk(id, target string) (*domain, *hv.Disk, error) {
	dom, err := f.find(id)
	if err != nil {
		return nil, nil, err
	}
	if !dom.State.Active() || dom.lost() {
		return nil, nil, fmt.Errorf("%w: %s", hv.ErrNotActive, id)
	}
	disk := dom.LiveDisk(target)
	if disk == nil {
		return nil, nil, fmt.Errorf("%w: live disk %s of %s", hv.ErrNotFound, target, id)
	}
	return dom, disk, nil
}

func (f *Fake) lifecycle(dom *domain, detail string) {
	f.feed.Publish(hv.Event{Kind: hv.EventLifecycle, DomainID: dom.ID, Detail: detail})
}

func findDisk(disks []hv.Disk, target string) *hv.Disk {
	return (&hv.Domain{Live: disks}).LiveDisk(target)
}

func (d *domain) statsOf(target string) *hv.DiskStats {
	if d.stats[target] == nil {
		d.stats[target] = &hv.DiskStats{}
	}
	return d.stats[target]
}

// forget drops what is known of the content of disks that the domain no longer
// has, so that another one may come at their target.
func (d *domain) forget() {
	maps.DeleteFunc(d.acked, func(target string, _ map[int64]uint64) bool {
		return d.LiveDisk(target) == nil && d.ConfigDisk(target) == nil
	})
}

// guestDisk is a disk that the guest can reach now.
func (f *Fake) guestDisk(id, target string) (*domain, *hv.Disk, error) {
	dom, disk, err := f.liveDisk(id, target)
	if err == nil && dom.State != hv.StateRunning {
		err = ErrPaused
	}
	return dom, disk, err
}
