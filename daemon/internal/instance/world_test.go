// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/instance/plans"
	"github.com/volferry/volferry/daemon/internal/instance/shelf"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

const (
	web      = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0005"
	rootVol  = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0011"
	dataVol  = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0012"
	rootPath = "/shared/root.raw"
	dataPath = "/shared/data.raw"
	testOp   = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aaa"
	testSize = 8 * hvtest.BlockSize
)

// world is a site in memory: two hosts, one registry, one instance with a root and another volume.
// Each call of a hypervisor or the registry is a possible happening, and the invariants are checked
// after it.
type world struct {
	registry *fakeRegistry
	nodes    []*node
	moments  *hosttest.Moments
	asked    atomic.Int64
}

// newWorld returns a world with the instance on host alpha, in this state.
func newWorld(t *testing.T, state api.InstanceState) *world {
	t.Helper()
	w := &world{moments: &hosttest.Moments{}}
	w.moments.Look = w.look
	w.registry = newFakeRegistry(w)
	for i, name := range []string{"alpha", "beta"} {
		w.nodes = append(w.nodes, newNode(t, w, name, fmt.Sprintf("6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e010%d", i)))
	}
	alpha := w.nodes[0]
	must(t, alpha.Define(hv.Domain{ID: web, Name: "web", Config: []hv.Disk{
		disk("vda", rootVol, rootPath), disk("vdb", dataVol, dataPath),
		{Target: "hda", Bus: "ide", Device: "cdrom", ReadOnly: true},
	}}))
	alpha.SetNVRAM(web, []byte("boot from vda"))
	w.registry.place(alpha, api.InstanceStopped)
	switch state {
	case api.InstanceRunning, api.InstancePaused:
		must(t, alpha.Start(web))
		if state == api.InstancePaused {
			must(t, alpha.SuspendByUser(web))
		}
	case api.InstanceShelved, api.InstanceShelvedOffloaded:
		w.shelve(t, alpha, state)
	case api.InstanceStopped, api.InstanceAsleep, api.InstanceCrashed, api.InstanceError:
	}
	w.registry.place(alpha, state)
	return w
}

// shelve puts the world into the state after a shelve.
func (w *world) shelve(t *testing.T, n *node, state api.InstanceState) {
	t.Helper()
	e := plans.NewEnv(subject.Config{}, n.ports(), noRunner{}, n.journal, nil, slog.New(slog.DiscardHandler))
	in := &shelf.ShelveInput{Subject: n.subject(), Keep: true}
	def, _, err := e.Shelf.CollectDefinition(t.Context(), in)
	must(t, err)
	w.registry.shelf = &def
	must(t, n.guards.Set(web, guard.OwnerShelf, "shelved"))
	if state == api.InstanceShelvedOffloaded {
		must(t, n.Fake.UndefineDomain(t.Context(), web))
	}
}

func disk(target, serial, path string) hv.Disk {
	return hv.Disk{
		Target: target, Bus: "virtio", Device: "disk", Serial: serial, Terminated: true,
		Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}},
	}
}

// look reports violated invariants (DESIGN.md, 1). Another op may run meanwhile, so it compares the
// observation with the registry before and after.
func (w *world) look() {
	before := w.registry.now()
	type seen struct {
		n   *node
		dom *hv.Domain
		// guarded at one of two reads, and at both.
		guarded, still bool
	}
	var all []seen
	for _, n := range w.nodes {
		guarded, _ := n.guards.Has(web, guard.OwnerShelf)
		dom, err := n.Fake.Domain(context.Background(), web)
		if err == nil {
			again, _ := n.guards.Has(web, guard.OwnerShelf)
			all = append(all, seen{n, dom, guarded || again, guarded && again})
		}
	}
	after := w.registry.now()
	free := 0
	for _, s := range all {
		// It may be started after its stop and before it is guarded.
		if s.still && s.dom.State.Active() && before.inst.State.OnShelf() && after.inst.State.OnShelf() {
			w.moments.Wrong("it runs on %s, which guards it, and the registry has it as %s", s.n.name, after.inst.State)
		}
		if s.guarded {
			continue
		}
		free++
		if before.inst.Host != s.n.name && after.inst.Host != s.n.name {
			w.moments.Wrong("it is on %s without a guard, and the registry has it on %q", s.n.name, after.inst.Host)
		}
	}
	if free > 1 {
		w.moments.Wrong("%d hosts have it without a guard", free)
	}
	if len(all) == 0 && before.shelf == nil && after.shelf == nil {
		w.moments.Wrong("its definition is lost")
	}
}

// unheard returns what the registry does not know of an instance that is on its host.
func (w *world) unheard() error {
	inst := w.registry.now().inst
	for _, n := range w.nodes {
		dom, err := n.Fake.Domain(context.Background(), web)
		if err == nil && inst.Host == n.name && !inst.State.OnShelf() && StateOf(dom) != inst.State {
			return fmt.Errorf("the instance is %s, and the registry has it as %s", dom.State, inst.State)
		}
	}
	return nil
}

// settled returns the faults of a world without running ops.
func (w *world) settled() error {
	w.look()
	for _, n := range w.nodes {
		if dom, err := n.Fake.Domain(context.Background(), web); err == nil {
			w.registry.report(n, StateOf(dom))
		}
	}
	wrongs := w.moments.Wrongs()
	reg := w.registry.now()
	for _, n := range w.nodes {
		if what := n.unsettled(reg); what != "" {
			wrongs = append(wrongs, what)
		}
	}
	if (reg.shelf != nil) != reg.inst.State.OnShelf() {
		wrongs = append(wrongs, fmt.Sprintf("it is %s and the registry has a definition: %t", reg.inst.State, reg.shelf != nil))
	}
	if len(wrongs) > 0 {
		return errors.New(strings.Join(wrongs, "; "))
	}
	return nil
}

// unsettled returns the faults of a host without running ops.
func (n *node) unsettled(reg snapshot) string {
	dom, err := n.Fake.Domain(context.Background(), web)
	if err != nil {
		dom = nil
	}
	guarded, _ := n.guards.Has(web, guard.OwnerShelf)
	here := reg.inst.Host == n.name
	switch state := reg.inst.State; {
	case here && dom == nil:
		return fmt.Sprintf("it is %s on %s, which has no domain", state, n.name)
	case !here && dom != nil:
		return fmt.Sprintf("%s has a domain, and the registry has it on %q (%s)", n.name, reg.inst.Host, state)
	case here && state.OnShelf() != guarded:
		return fmt.Sprintf("it is %s on %s, guarded: %t", state, n.name, guarded)
	case here && state.OnShelf() && dom.State.Active():
		return fmt.Sprintf("it is %s on %s and runs", state, n.name)
	case here && !state.OnShelf() && state != StateOf(dom):
		return fmt.Sprintf("it is %s on %s and the registry has it as %s", dom.State, n.name, state)
	case here && subject.Differs(dom, reg.atts) != "":
		return subject.Differs(dom, reg.atts)
	case here && len(dom.Config) != len(reg.atts)+1: // the CD-ROM is the additional one
		return fmt.Sprintf("it has the disks %+v", dom.Config)
	case here && dom.ConfigDisk("vda").Serial != rootVol:
		return fmt.Sprintf("its root disk is %+v", dom.ConfigDisk("vda"))
	case here && string(n.NVRAM(web)) != "boot from vda":
		return "its NVRAM is lost"
	}
	return ""
}

// node is a host of the world, with its manager's hypervisor.
type node struct {
	*hosttest.Hypervisor
	world    *world
	name, id string
	guards   *hosttest.Guards
	journal  *optest.Journal

	known api.Instance
	// switching reports that a migration has paused the instance.
	switching bool
	// nameStanding is NameStanding while an op of a migration waits for the operator, else nil.
	nameStanding func() error
	mayStart     error
	unrecorded   error // the result of CheckRecorded
	open         []api.Migration
	// missing are images that this host lacks.
	missing map[string]bool
	places
}

func newNode(t *testing.T, w *world, name, id string) *node {
	t.Helper()
	n := &node{
		Hypervisor: &hosttest.Hypervisor{Fake: hvtest.New(), Moments: w.moments}, world: w, name: name, id: id,
		guards: hosttest.NewGuards(nil), journal: optest.NewJournal(), missing: map[string]bool{},
	}
	n.OnStart = n.guards.Hook
	for _, path := range []string{rootPath, dataPath} {
		must(t, n.CreateImage(path, hvtest.Raw, testSize))
	}
	return n
}

func (n *node) host() Host {
	return Host{ID: n.id, Name: n.name, Epoch: n.world.registry.ReportedEpoch(n.id)}
}

func (n *node) subject() subject.Subject {
	return subject.Subject{InstanceID: web, InstanceName: "web", Host: n.id, HostName: n.name, Epoch: 1}
}

func (n *node) ports() Ports {
	return Ports{Domains: n, Definitions: n, Devices: n, Power: n, Memory: n, Registry: &view{n.world.registry, n}, Guards: n.guards, Locations: n, Migrations: n, MovingGuests: n, Parts: n, Recorded: n.checkRecorded, Known: n, Images: &hosttest.Images{Fake: n.Fake}, Report: n.report}
}

func (n *node) newManager(runner *op.Runner) *Manager {
	return New(Config{}, n.ports(), runner, n.journal, func(context.Context) (Host, error) { return n.host(), nil }, slog.New(slog.DiscardHandler))
}

// report reports this host's domains to the registry.
func (n *node) report(ctx context.Context) error {
	dom, err := n.Domain(ctx, web)
	if err == nil {
		n.world.registry.report(n, StateOf(dom))
	}
	return err
}

// Connect implements Locations.
func (n *node) Connect(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error) {
	return n.Chain(ctx, vol, att)
}

// Chain implements Locations.
func (n *node) Chain(ctx context.Context, vol api.Volume, att api.Attachment) ([]hv.Image, error) {
	if n.missing[att.Location.Path] {
		return nil, api.Errorf(api.CodeNotFound, "cannot attach volume %s: there is nothing at %s on this host", vol.Name, att.Location.Path)
	}
	if err := n.CheckLocation(ctx, att.Location, "cannot attach volume "+vol.Name); err != nil {
		return nil, err
	}
	return []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: att.Location.Path}}, nil
}

// Disconnect implements Locations. It opens the image, to flush it.
func (n *node) Disconnect(_ context.Context, _ api.Volume, att api.Attachment) error {
	return n.CheckImages(att.Location)
}

// List implements Migrations.
func (n *node) List(context.Context, bool) ([]api.Migration, error) { return n.open, nil }

// CheckRecorded implements Migrations.
func (n *node) checkRecorded(context.Context, string) error { return n.unrecorded }

// MayStart implements Migrations.
func (n *node) MayStart(context.Context, string) error { return n.mayStart }

// Misnamed implements Migrations.
func (n *node) Misnamed(context.Context, string, bool) ([]hv.NamedChain, error) {
	return nil, n.mayStart
}

// Standing implements Migrations.
func (n *node) Standing(context.Context, string) (bool, error) { return n.nameStanding != nil, nil }

// NameStanding implements Migrations.
func (n *node) NameStanding(context.Context, string) error { return n.nameStanding() }

// Switching implements Migrations.
func (n *node) Switching(string) bool { return n.switching }

// StoodStill implements Migrations.
func (n *node) StoodStill(context.Context, string, string) error { return nil }

// CheckPaused implements Migrations.
func (n *node) CheckPaused(context.Context, api.Volume, api.Attachment, []string) error { return nil }

// KnownInstance implements Known.
func (n *node) KnownInstance(_ context.Context, ref string) (api.Instance, bool) {
	return n.known, ref == n.known.ID || ref == n.known.Name
}

// daemon is the manager of a host, which may die and start again.
type daemon struct {
	*hosttest.Daemon[*Manager]
	node *node
}

func startDaemon(t *testing.T, n *node) *daemon {
	t.Helper()
	return &daemon{node: n, Daemon: hosttest.Start(t, hosttest.Program[*Manager]{
		Runner: op.Config{Journal: n.journal, Describe: describe, MaxTries: 5},
		New:    n.newManager,
	})}
}

// awayFor makes libvirt unreachable for a time.
func (d *daemon) awayFor(how time.Duration) {
	d.AwayFor(how, d.node.SetAway, request.WaitHypervisor)
}

// registryAwayFor makes the registry unreachable for a time.
func (d *daemon) registryAwayFor(how time.Duration) {
	d.AwayFor(how, d.node.world.registry.SetDown, request.WaitRegistry)
}

var must, wantCode, pass = expect.OK, expect.Code, hosttest.Pass

// describe keeps the code of an error.
func describe(err error) op.Failure {
	var e *api.Error
	if errors.As(err, &e) {
		return op.Failure{Code: string(e.Code), Message: e.Message, Details: e.Details}
	}
	return op.Failure{Code: string(api.CodeInternal), Message: err.Error()}
}
