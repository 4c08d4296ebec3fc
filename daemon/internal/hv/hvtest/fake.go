// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

var _ hv.Hypervisor = (*Fake)(nil)

// Fake is a hypervisor in memory, on images that behave as images do: a
// snapshot freezes what is below, a mirror copies block by block while the
// guest writes, a stale overlay shadows newer data. It also plays the guest,
// the person with virsh, and every kind of failure. It is safe for concurrent
// use. Jobs advance only when somebody looks (Domain, Domains, Job) or calls
// Step.
type Fake struct {
	*Images

	// OnStart, if set, is asked before a domain starts, whoever starts it, as
	// libvirt's hook is; an error refuses the start. Set it before use.
	OnStart func(domainID string) error
	// OnStartToken, if set, is asked in its place before a restore that has a start token.
	OnStartToken func(domainID, token string) error

	feed    hv.Feed
	domains map[string]*domain
	pools   map[string]*hv.PoolInfo
	perLook int // blocks that a look advances a job
	faults  []*Fault
	calls   []string
	runs    int // processes that were ever started
	boots   int // of the host
	about   hv.About
	nvram   map[string][]byte // files, which outlive their domains
	// unreadable are the errors of domains that cannot be read.
	unreadable map[string]error
}

// domain is the state of one domain.
type domain struct {
	hv.Domain // Live and Config without mirrors
	jobs      map[string]*job
	saved     []hv.Disk // what a managed save would start with
	acked     map[string]map[int64]uint64
	// beganOn are the images that its process was started with, plugged the disks that it
	// was given since.
	beganOn []string
	plugged map[string]bool
	stats   map[string]*hv.DiskStats
	limits  map[string]int64
	// sizes are those that the process gives its disks, if it has been told.
	sizes map[string]int64
	// byUser: a person paused it, so that being paused is as it should be.
	byUser bool
	// unplug is how the guest answers a request to let go of a disk; leaving
	// are the live disks whose request it has not answered.
	unplug  Unplug
	leaving map[string]bool
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

// defaultPerLook is how many blocks a look advances a job: few, so that tests
// see jobs that are not ready.
const defaultPerLook = 2

// New returns a Fake that is connected and has no domains.
func New() *Fake {
	f := &Fake{
		Images:  newImages(),
		domains: make(map[string]*domain),
		pools:   make(map[string]*hv.PoolInfo),
		nvram:   make(map[string][]byte),
		perLook: defaultPerLook,
	}
	f.holders = f.countHolders
	f.feed.Publish(hv.Event{Kind: hv.EventConnected})
	return f
}

// Define adds a persistent domain that is off. Only the identity, Autostart,
// MemoryBytes, Config and the counts of snapshots and checkpoints of d are used;
// each disk's images must exist.
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

// newDomain is a persistent domain that is off.
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
	}
}

// expect notes what the guest finds on a disk that is new to it, for
// AssertNoWriteLost.
func (f *Fake) expect(dom *domain, disk *hv.Disk) error {
	if dom.acked[disk.Target] != nil {
		return nil
	}
	chain, err := f.startChain(*disk)
	if err != nil {
		return err
	}
	content, err := f.read(chain)
	if err != nil {
		return err
	}
	dom.acked[disk.Target] = content
	return nil
}

// Undefine removes the definition: an active domain lives on as a transient
// one.
func (f *Fake) Undefine(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err != nil {
		return err
	}
	dom.Persistent, dom.Autostart, dom.ManagedSave, dom.Config, dom.saved = false, false, false, nil, nil
	if !dom.State.Active() {
		delete(f.domains, id)
	}
	f.lifecycle(dom, "undefined")
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
				all = append(all, dom.view())
			}
		}
		if len(unreadable.Domains) > 0 {
			return &unreadable
		}
		return nil
	})
	return all, err
}

// MakeUnreadable makes Domain fail for this domain with err, and Domains leave it
// out; nil ends that.
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
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &view, nil
}

// Up implements hv.Hypervisor.
func (f *Fake) Up() bool { return f.feed.Up() }

// Events implements hv.Hypervisor.
func (f *Fake) Events(ctx context.Context) <-chan hv.Event { return f.feed.Subscribe(ctx) }

// view is a copy for a caller, with the mirrors as the jobs are.
func (d *domain) view() hv.Domain {
	v := d.Domain
	v.Occupied = d.occupied
	v.Live, v.Config = copyDisks(d.Live), copyDisks(d.Config)
	if d.stale != nil {
		v.Live = copyDisks(d.stale.live)
	}
	for i := range v.Live {
		if j := d.jobs[v.Live[i].Target]; j != nil && d.knowsJob(v.Live[i].Target) {
			v.Live[i].Mirror = &hv.Mirror{Job: j.kind, Image: j.dst, Ready: j.ready}
		}
	}
	return v
}

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
	if err == nil && !dom.State.Active() {
		err = hv.ErrNotActive
	}
	if err != nil {
		return nil, err
	}
	return dom, nil
}

// look finds a domain after time has passed for it: its guest has done what it
// was asked for, and its jobs have advanced.
func (f *Fake) look(id string) (*domain, error) {
	dom, err := f.find(id)
	if err != nil {
		return nil, err
	}
	f.obey(dom)
	f.advance(dom, f.perLook)
	return f.find(id) // a transient one may be gone
}

// liveDisk finds a disk of an active domain.
func (f *Fake) liveDisk(id, target string) (*domain, *hv.Disk, error) {
	dom, err := f.find(id)
	if err != nil {
		return nil, nil, err
	}
	if !dom.State.Active() {
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
