// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

const (
	testHost   = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0001"
	hostName   = "alpha"
	testVolume = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0002"
	testAtt    = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0003"
	otherAtt   = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0004"
	web        = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0005"
	db         = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0006"
	testOp     = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aaa"
	volPath    = "/shared/vol.raw"
	testSize   = 32 * hvtest.BlockSize
)

// world is a host in memory with two instances, one volume and its registry. Each call of
// hypervisor, registry and guards is a possible happening, and the invariants are checked after it.
type world struct {
	*hosttest.Hypervisor
	registry   *fakeRegistry
	images     *hosttest.Images
	migrations fakeMigrations
	known      fakeKnown
	guards     *hosttest.Guards
	guardPort  Guards // guards, unless a test replaces them
	site       *fakeSite
	journal    journalWithBlobs
	unplugs    *PendingUnplugs // of the newest manager
	events     []api.EventPost // in the audit trail
}

type blobs = migratetest.Blobs

// journalWithBlobs is a journal in memory with its blobs, which survives daemons.
type journalWithBlobs struct {
	*optest.Journal
	*blobs
}

// fakeSite has the claimed images of the host.
type fakeSite struct {
	volumes    []api.Volume
	migrations []api.Migration
}

func (s *fakeSite) Volumes(context.Context) ([]api.Volume, error) { return s.volumes, nil }

func (s *fakeSite) Migrations(context.Context, string, bool) ([]api.Migration, error) {
	return s.migrations, nil
}

// EachVolume implements location.Site.
func (s *fakeSite) EachVolume(ctx context.Context, do func(*api.Volume) error) error {
	return hosttest.Each(s.Volumes(ctx))(do)
}

// EachOpenMigration implements location.Site.
func (s *fakeSite) EachOpenMigration(ctx context.Context, do func(*api.Migration) error) error {
	return hosttest.Each(s.Migrations(ctx, "", false))(do)
}

func newWorld(t *testing.T, states ...hv.State) *world {
	t.Helper()
	moments := &hosttest.Moments{}
	w := &world{
		Hypervisor: &hosttest.Hypervisor{Fake: hvtest.New(), Moments: moments}, journal: journalWithBlobs{optest.NewJournal(), &blobs{}},
		guards: hosttest.NewGuards(moments), known: fakeKnown{}, site: &fakeSite{},
	}
	moments.Look = w.look
	w.registry = newFakeRegistry(w)
	w.images = &hosttest.Images{Fake: w.Fake}
	w.guardPort, w.OnStart = w.guards, w.guards.Hook
	w.AddPool(hv.PoolInfo{Name: "shared", Type: "dir", Path: "/shared", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
	must(t, w.CreateImage(volPath, hvtest.Raw, testSize))
	for i, id := range []string{web, db} {
		name := []string{"web", "db"}[i]
		root := "/roots/" + name + ".raw"
		must(t, w.CreateImage(root, hvtest.Raw, testSize))
		must(t, w.Define(hv.Domain{ID: id, Name: name, Config: []hv.Disk{{
			Target: "vda", Bus: "virtio", Device: "disk", Terminated: true,
			Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: root}},
		}}}))
		if i < len(states) && states[i].Active() {
			must(t, w.Start(id))
		}
		if i < len(states) && states[i] == hv.StatePaused {
			must(t, w.SuspendByUser(id))
		}
	}
	return w
}

// imagePath is the volume's address in a world with a Ceph cluster.
const imagePath = "rbd://5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/vol"

// atImage moves the volume to an RBD image, which the kernel does not know; the image's clients are
// counted.
func (w *world) atImage(t *testing.T) {
	t.Helper()
	must(t, w.CreateImage(imagePath, hvtest.Raw, testSize))
	at := &w.registry.vol.Location
	at.Pool, at.Name, at.Path = "", "", imagePath
}

// attached makes the volume a disk of an instance, without an op.
func (w *world) attached(t *testing.T, attachmentID, instanceID string) {
	t.Helper()
	in := w.input(attachmentID, instanceID)
	must(t, w.Fake.AttachDisk(t.Context(), instanceID, hv.Config, in.disk()))
	dom, err := w.Fake.Domain(t.Context(), instanceID)
	must(t, err)
	if dom.State.Active() {
		must(t, w.Fake.AttachDisk(t.Context(), instanceID, hv.Live, in.disk()))
	}
	w.registry.rows[attachmentID] = in.attachment(api.AttachmentAttached)
}

// editDisk edits the volume's disk at instance web, as virsh does.
func (w *world) editDisk(t *testing.T, where hv.Where, edit func(*hv.Disk)) {
	t.Helper()
	dom, err := w.Fake.Domain(t.Context(), web)
	must(t, err)
	disk := *diskIn(dom, where)
	edit(&disk)
	def, err := json.Marshal(disk)
	must(t, err)
	must(t, w.Fake.DetachDisk(t.Context(), web, where, disk.Target))
	must(t, w.Fake.AttachDisk(t.Context(), web, where, hv.DiskSpec{Target: disk.Target, Definition: string(def)}))
}

func diskIn(dom *hv.Domain, where hv.Where) *hv.Disk {
	if where == hv.Live {
		return dom.LiveDisk("vdb")
	}
	return dom.ConfigDisk("vdb")
}

// input returns the input of an op for the volume as disk vdb of an instance.
func (w *world) input(attachmentID, instanceID string) input {
	return input{
		AttachmentID: attachmentID, VolumeID: testVolume, VolumeName: "vol", InstanceID: instanceID, InstanceName: instanceID,
		DiskAttachment: api.DiskAttachment{Device: "vdb", Mode: api.ModeRW}, Shareable: w.registry.vol.Multiattach, Location: w.registry.vol.Location,
		Host: testHost, HostName: hostName, Epoch: 1, Generation: 1,
	}
}

func (w *world) newManager(runner *op.Runner) *Manager {
	host := func(context.Context) (Host, error) {
		return Host{ID: testHost, Name: hostName, Epoch: w.registry.ReportedEpoch(testHost)}, nil
	}
	w.unplugs = NewPendingUnplugs(w, w, w.journal, "")
	ports := Ports{
		Domains: w, Disks: w, Devices: w, Pools: w, Processes: w, Unplugs: w.unplugs, Registry: w.registry, Images: w.images, Migrations: &w.migrations, Recorded: w.migrations.checkVolumeRecorded, Known: w.known, Guards: w.guardPort, Claims: &location.Claims{Site: w.site, Pools: w.Fake.Pools, HostID: testHost, HostName: hostName}, Report: w.registry.hear,
		Audit: func(e api.EventPost) { w.events = append(w.events, e) },
	}
	return New(Config{Rules: location.Rules{Storage: w, AllowedPaths: []string{"/run"}, RBD: rbd.Clusters{"5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11": {}}}}, ports, runner, w.journal, host, slog.New(slog.DiscardHandler))
}

// look reports a violated invariant: an image in a domain without an attachment. Another op may run
// meanwhile, so it compares the observation with the registry before and after.
func (w *world) look() {
	rows := w.registry.all()
	doms, err := w.Fake.Domains(context.Background())
	if err != nil {
		return
	}
	rows = append(rows, w.registry.all()...)
	for i := range doms {
		for where, disks := range map[string][]hv.Disk{"running": doms[i].Live, "defined": doms[i].Config} {
			for _, d := range disks {
				has := slices.ContainsFunc(rows, func(a api.Attachment) bool { return a.InstanceID == doms[i].ID && a.Device == d.Target })
				if d.Top().Path == w.registry.vol.Location.Path && !has {
					w.Moments.Wrong("%s of %s (%s) has the volume, and the registry has no attachment", d.Target, doms[i].Name, where)
				}
			}
		}
		w.lookAtRoot(&doms[i])
	}
}

// settled returns the faults of a world without running ops.
func (w *world) settled() error {
	w.look()
	doms, err := w.Fake.Domains(context.Background())
	if err != nil {
		return err
	}
	var errs []error
	for _, wrong := range w.Moments.Wrongs() {
		errs = append(errs, errors.New(wrong))
	}
	return errors.Join(append(errs, w.atRest(doms))...)
}

// atRest returns the faults of the present state.
func (w *world) atRest(doms []hv.Domain) error {
	var errs []error
	for _, a := range w.registry.all() {
		i := slices.IndexFunc(doms, func(d hv.Domain) bool { return d.ID == a.InstanceID })
		if a.State != api.AttachmentAttached {
			errs = append(errs, fmt.Errorf("attachment %s is left %s", a.ID, a.State))
		}
		if i >= 0 && doms[i].ConfigDisk(a.Device) == nil {
			errs = append(errs, fmt.Errorf("attachment %s is not in the definition", a.ID))
		}
	}
	for i := range doms {
		if d := &doms[i]; d.State.Active() && !slices.EqualFunc(byTarget(d.Live), byTarget(d.Config), sameDisk) {
			errs = append(errs, fmt.Errorf("instance %s runs with %+v and is defined with %+v", d.Name, d.Live, d.Config))
		}
		if d := &doms[i]; d.ID == web && w.registry.root != nil {
			errs = append(errs, w.rootSettled(d))
		}
	}
	return errors.Join(errs...)
}

func byTarget(disks []hv.Disk) []hv.Disk {
	return slices.SortedFunc(slices.Values(disks), func(a, b hv.Disk) int { return int(a.Target[2]) - int(b.Target[2]) })
}

func sameDisk(a, b hv.Disk) bool {
	return a.Target == b.Target && a.Address == b.Address && a.Serial == b.Serial && a.Shareable == b.Shareable &&
		a.ReadOnly == b.ReadOnly && slices.Equal(a.Chain, b.Chain)
}

// kindHold is another manager's op that lasts until the channel in hold is closed.
const kindHold = "hold"

// daemon is a manager on a world, which may die and start again.
type daemon struct {
	*hosttest.Daemon[*Manager]
	world *world
	hold  chan chan struct{}
}

func startDaemon(t *testing.T, w *world) *daemon {
	t.Helper()
	d := &daemon{world: w, hold: make(chan chan struct{}, 1)}
	hold := op.Plan{Kind: kindHold, Steps: []op.Step{{Name: "hold", Do: func(ctx context.Context, _ *op.Run) error {
		select {
		case <-<-d.hold:
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	}}}}
	d.Daemon = hosttest.Start(t, hosttest.Program[*Manager]{
		Runner: op.Config{Journal: w.journal, Describe: request.Describe, MaxTries: 5},
		New: func(runner *op.Runner) *Manager {
			runner.Register(hold)
			return w.newManager(runner)
		},
		Run: (*Manager).Run,
	})
	return d
}

var must, wantCode, pass = expect.OK, expect.Code, hosttest.Pass

// fakeMigrations are the open migrations of the host.
type fakeMigrations struct {
	open       []api.Migration
	unrecorded error
}

func (m *fakeMigrations) List(context.Context, bool) ([]api.Migration, error) { return m.open, nil }

func (m *fakeMigrations) checkVolumeRecorded(context.Context, api.Volume) error { return m.unrecorded }

// fakeKnown is the host's cache, by attachment.
type fakeKnown map[string]api.Attachment

func (k fakeKnown) Known(_ context.Context, id string) (api.Attachment, bool) {
	a, ok := k[id]
	return a, ok
}

func (k fakeKnown) KnownAt(_ context.Context, volume, instance string) (api.Attachment, bool) {
	for _, a := range k {
		if a.VolumeID == volume && a.InstanceID == instance {
			return a, true
		}
	}
	return api.Attachment{}, false
}

func (k fakeKnown) KnownInstance(_ context.Context, id string) (api.Instance, bool) {
	return api.Instance{ID: id, Name: "web", Host: hostName, State: api.InstanceStopped}, id == web
}
