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

// ErrPaused is the error of a guest's write or read while its domain is paused. A real guest would
// wait.
var ErrPaused = errors.New("the domain is paused")

var _ hv.Hypervisor = (*Fake)(nil)

// Fake is a hypervisor in memory, on Images. It also plays the guest, the person with virsh, and
// every kind of failure. It is safe for concurrent use. Jobs advance only in calls that look
// (Domain, Domains, Job) and in Step.
type Fake struct {
	*Images

	// OnStart, if set, is called before every start of a domain, as libvirt's hook is; an error
	// refuses the start. Set it before use.
	OnStart func(domainID string) error
	// OnStartToken, if set, is called instead of OnStart before a restore with a start token.
	OnStartToken func(domainID, token string) error

	feed       hv.Feed
	domains    map[string]*domain
	pools      map[string]*hv.PoolInfo
	extents    map[string]int64
	perLook    int
	faults     []*Fault
	calls      []string
	runs       int
	boots      int
	about      hv.About
	nvram      map[string][]byte // files, which outlive their domains
	denied     map[string]string // files of the rules that deny writes, by image path
	confined   string            // the file of the rules that Confine has asked for
	unreadable map[string]error
	// targets are the volumes of storage targets, by path; connected volumes are also among the
	// images.
	targets map[string]*image
	copies  []hv.DeviceCopy
	clones  map[string]bool
	silent  map[string]bool
	locks   locks
}

// locks is the hypervisor's lock manager. The leases of its own domains follow from their state: a
// running domain has the leases of the images that its disks write to, and an active domain has
// the leases of the images that its jobs write to.
type locks struct {
	on        bool
	why       string
	elsewhere map[string]bool
}

type domain struct {
	hv.Domain // Live and Config without mirrors
	jobs      map[string]*job
	backups   map[string]bool
	saved     []hv.Disk
	acked     map[string]map[int64]uint64
	// beganOn are the images in the process's start arguments, plugged the disks attached later.
	beganOn []string
	plugged map[string]bool
	// deniedBelow are the images that the rules deny to the process, if Confine was called.
	deniedBelow map[string]bool
	bitmaps     map[string][]*bitmap
	saving      bool
	qemu        hv.Version
	stats       map[string]*hv.DiskStats
	limits      map[string]int64
	ownLimits   map[string]int64
	sizes       map[string]int64
	shown       hv.State
	byUser      bool
	// leaving are the live disks with an unanswered request to release them.
	unplug       Unplug
	leaving      map[string]bool
	savedLeaving map[string]bool
	// asked counts the open requests to shut down or, if thenReboot, to reboot.
	shutdown   Shutdown
	asked      int
	thenReboot bool
	reboots    int
	// starting is closed when the hook has answered a start; nil while the hook is not called.
	starting chan struct{}
	leansOn  string
	// stale is what the hypervisor reports of the process instead of the truth, or nil; see
	// GoStale.
	stale    *staleView
	occupied bool
	thaws    bool
}

type staleView struct {
	live []hv.Disk
	jobs map[string]bool
	lost bool
}

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

func (d *domain) forget() {
	maps.DeleteFunc(d.acked, func(target string, _ map[int64]uint64) bool {
		return d.LiveDisk(target) == nil && d.ConfigDisk(target) == nil
	})
}

func (f *Fake) guestDisk(id, target string) (*domain, *hv.Disk, error) {
	dom, disk, err := f.liveDisk(id, target)
	if err == nil && dom.State != hv.StateRunning {
		err = ErrPaused
	}
	return dom, disk, err
}
