// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// World is a host in memory: one instance that writes at each look, one volume, two pools.
type World struct {
	*hvtest.Fake
	Registry *FakeRegistry
	Guards   *hosttest.Guards
	Images   *hosttest.Images
	Copier   *FakeCopier
	Blobs    *Blobs
	// Connectors, if not nil, has the connectors' pools.
	Connectors *hosttest.Connectors

	// Bases are the base images that the volume keeps.
	Bases        []hv.Image
	basesWritten int64
	Src          hv.Image
	To           api.MigrationTarget
	// Makes: the move makes an image at an address.
	Makes bool
	// larger are the images with the volume as their beginning.
	larger largerImages
	// SrcGoes: src is deleted at the end. Snapshots are the foreign snapshots of src, which stay.
	SrcGoes   bool
	Snapshots []string
	// MayMove and MayOverlay may be nil.
	MayMove, MayOverlay func() error
	audited             []string
	auditedOps          map[string]bool

	Mu    sync.Mutex
	Quiet bool
	// Seen is called at the next look, and may change its result.
	Seen func(*hv.Domain)
	// Reopened, if not nil, reports whether the guest's process has opened an image that is in no
	// chain of libvirt.
	Reopened   func(path string) bool
	next       uint64
	definition definitionWatch
	// latency returns how long a write of a busy guest takes. job is the disk's job, or nil.
	latency func(job *hv.Job) time.Duration
	busy    hv.DiskStats
	ahead   atomic.Int64
}

// NewWorld makes a host with an instance on src, in this state.
func NewWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	w := &World{Fake: hvtest.New(), Guards: hosttest.NewGuards(nil), next: 1000, Src: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: SrcPath}, To: api.MigrationTarget{ToPool: "new"}}
	w.OnStart = w.Guards.Hook
	expect.OK(t, w.CreateImage(SrcPath, hvtest.Raw, Size))
	for b := range int64(Blocks / 2) {
		expect.OK(t, w.WriteBlock(SrcPath, b*2, uint64(b)+1))
	}
	w.AddPool(hv.PoolInfo{Name: "new", Type: "dir", Path: "/new", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
	expect.OK(t, w.Define(hv.Domain{ID: Instance, Name: "web", Config: []hv.Disk{{
		Target: "vda", Bus: "virtio", Device: "disk", Serial: Volume, Terminated: true,
		Chain: []hv.Image{w.Src},
	}}}))
	w.Registry, w.Blobs = newRegistry(), &Blobs{}
	w.Images = &hosttest.Images{Fake: w.Fake}
	w.Copier = &FakeCopier{fake: w.Fake, Done: map[string]bool{}, Asked: map[string]bool{}, Updates: map[string]api.MigrationUpdate{}, Kept: map[string]move.KeptUnits{}}
	w.bring(t, state)
	return w
}

func (w *World) bring(t *testing.T, state hv.State) {
	t.Helper()
	if state.Active() {
		expect.OK(t, w.Start(Instance))
	}
	if state == hv.StatePaused {
		expect.OK(t, w.SuspendByUser(Instance))
	}
}

// LosingQEMU is a QEMU that loses a guest's writes while a block job begins.
var LosingQEMU = hv.Version{Major: 8, Minor: 2}

// DyingQEMU is a QEMU that may die of an I/O thread's write while a block job begins.
var DyingQEMU = hv.Version{Major: 7, Minor: 2}

// WithLosingQEMU makes worlds in LosingQEMU.
func WithLosingQEMU(kind func(*testing.T, hv.State) *World) func(*testing.T, hv.State) *World {
	return with(kind, func(_ *testing.T, w *World) { w.SetAbout(hv.About{QEMU: LosingQEMU}) })
}

// WithIOThreads makes worlds with I/O threads in DyingQEMU.
func WithIOThreads(kind func(*testing.T, hv.State) *World) func(*testing.T, hv.State) *World {
	return with(kind, func(t *testing.T, w *World) {
		t.Helper()
		w.SetAbout(hv.About{QEMU: DyingQEMU})
		expect.OK(t, w.SetIOThreads(Instance))
	})
}

func with(kind func(*testing.T, hv.State) *World, prepare func(*testing.T, *World)) func(*testing.T, hv.State) *World {
	return func(t *testing.T, state hv.State) *World {
		t.Helper()
		w := kind(t, hv.StateStopped)
		prepare(t, w)
		w.bring(t, state)
		return w
	}
}

// Domain makes the guest write a block at each look.
func (w *World) Domain(ctx context.Context, id string) (*hv.Domain, error) {
	w.GuestWrites()
	w.Mu.Lock()
	told := w.next
	w.Mu.Unlock()
	dom, err := w.Fake.Domain(ctx, id)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if err == nil && id == Instance && w.definition.on && len(w.Guards.Guarded()) == 0 { // a guard refuses each start
		w.definition.look(w.Fake, dom, func() bool { return w.next == told })
	}
	if err == nil && w.Seen != nil {
		w.Seen(dom)
		w.Seen = nil
	}
	return dom, err
}

// DiskStats makes a busy guest write ten times between two looks.
func (w *World) DiskStats(ctx context.Context, id, target string) (*hv.DiskStats, error) {
	stats, err := w.Fake.DiskStats(ctx, id, target)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if err != nil || w.latency == nil {
		return stats, err
	}
	job, err := w.Job(ctx, id, target)
	if err != nil {
		return nil, err
	}
	w.busy.WriteRequests += 10
	w.busy.WriteTime += 10 * w.latency(job)
	stats.WriteRequests, stats.WriteTime = w.busy.WriteRequests, w.busy.WriteTime
	return stats, nil
}

// SetLatency makes the guest busy.
func (w *World) SetLatency(of func(job *hv.Job) time.Duration) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.latency = of
}

// SetQuiet stops the guest's writes.
func (w *World) SetQuiet() {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.Quiet = true
}

// GuestWrites makes the guest write a block, unless it is quiet.
func (w *World) GuestWrites() {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.Quiet {
		return
	}
	w.next++
	// A guest that is off or paused does not write.
	_ = w.GuestWrite(Instance, "vda", int64(w.next*7%Blocks), w.next)
}

// WatchDefinition makes Settled report errors of the definition. After that only Volferry may
// change the definition.
func (w *World) WatchDefinition() {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.definition.on = true
}

// Ports returns the world's ports.
func (w *World) Ports() move.Ports {
	h := w.Hypervisor()
	return move.Ports{HV: h, Images: w.Images, Copier: w.Copier, Updates: w.Copier, Units: w.Copier, Registry: w.Registry, Guards: w.Guards, Blobs: w.Blobs, Unplugs: unplugs{w}, Claims: w.claims(h), Audit: w.audit, Clock: w.now}
}

type unplugs struct{ w *World }

// MayMove implements move.Unplugs.
func (u unplugs) MayMove(context.Context, string) error { return refusedBy(u.w.MayMove) }

// MayOverlay implements move.Unplugs.
func (u unplugs) MayOverlay(context.Context, string, string) error { return refusedBy(u.w.MayOverlay) }

func refusedBy(refuse func() error) error {
	if refuse == nil {
		return nil
	}
	return refuse()
}

// Hypervisor returns the world's hypervisor for a new daemon.
func (w *World) Hypervisor() hv.Hypervisor {
	if w.Connectors == nil {
		return w
	}
	return w.Connectors.On(w)
}

// SetClock sets the host's clock forward or, with a negative by, back.
func (w *World) SetClock(by time.Duration) { w.ahead.Store(int64(by)) }

func (w *World) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func (w *World) audit(e api.EventPost) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.auditedOps[e.OpID] {
		return // the registry ignores repeated events
	}
	if w.auditedOps == nil {
		w.auditedOps = map[string]bool{}
	}
	w.auditedOps[e.OpID] = true
	w.audited = append(w.audited, e.What+" "+e.Object)
}

// Audits returns the audit trail's events.
func (w *World) Audits() []string {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return slices.Clone(w.audited)
}

func (w *World) claims(h hv.Hypervisor) *location.Claims {
	return &location.Claims{Site: w.Registry, Pools: h.Pools, HostID: Host}
}

// NewSpec returns the spec of the volume's move to the pool.
func NewSpec(method string) move.Spec {
	s := move.Spec{
		MigrationID: Migration, VolumeID: Volume, VolumeName: "vol", InstanceID: Instance, InstanceName: "web",
		Target: "vda", SrcAttachmentID: SrcAttachment, DstAttachmentID: DstAttachment, Host: Host, Epoch: 1, Generation: 1,
		Src:       api.Location{Path: SrcPath, Format: api.FormatRaw, SizeBytes: Size},
		Dst:       api.Location{Pool: "new", Name: "vol-6f0f7f6e.raw", Path: DstPath, Format: api.FormatRaw, SizeBytes: Size},
		CreateDst: true, Method: method, CopyOptions: api.CopyOptions{Verify: move.VerifyFull},
	}
	if method == move.MethodOverlay {
		s.Overlay = OverlayPath
	}
	return s
}

// Spec is NewSpec for the world's volume and destination.
func (w *World) Spec(method string) move.Spec {
	s := NewSpec(method)
	s.Src.Path, s.Src.ImageBytes = w.Src.Path, w.larger.bytes(w.Src.Path)
	s.SrcPrint, _ = w.Images.Fingerprint(context.Background(), w.Src.Path) // src exists
	if secret := w.Src.LUKSSecret; secret != "" {
		s.GuestBytes = Size
		for _, end := range []*api.Location{&s.Src, &s.Dst} {
			end.LUKSSecret, end.SizeBytes = secret, Size+hvtest.HeaderBytes
		}
	}
	if w.To.ToPath != "" {
		s.Dst, s.CreateDst = api.Location{Path: w.To.ToPath, Format: api.FormatRaw, SizeBytes: Size, ImageBytes: w.larger.bytes(w.To.ToPath)}, w.Makes
	}
	if w.To.KeepBase {
		s.Src = w.Registry.CurrentVolume().Location
		s.Dst.Format, s.Dst.Backing = s.Src.Format, s.Src.Backing
	}
	if w.Src.Type == hv.SourceBlock {
		s.Src.Format, s.SrcBlock = api.FormatQcow2, true
		s.Dst.Format, s.DstBlock, s.DstDeviceBytes = api.FormatQcow2, true, DeviceBytes
		s.DstPrint, _ = w.Images.Fingerprint(context.Background(), s.Dst.Path)
	}
	return s
}

// Settled returns the errors of a world without a running migration. The instance must be on the
// image with path at alone, nothing may remain, and no acknowledged write may be missing, nor from
// the definition at any look (WatchDefinition).
func (w *World) Settled(at string) error {
	return w.SettledOn(hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: at})
}

// SettledOn is Settled for an image over the kept base images.
func (w *World) SettledOn(at hv.Image) error {
	w.SetQuiet()
	r := &hosttest.Recorder{}
	w.AssertNoWriteLost(r)
	w.AssertClean(r)
	dom, err := w.Fake.Domain(context.Background(), Instance)
	if err != nil {
		return err
	}
	want := append([]hv.Image{at}, w.Bases...)
	for name, disks := range map[string][]hv.Disk{"live": dom.Live, "persistent": dom.Config} {
		if len(disks) > 0 && !slices.Equal(disks[0].Chain, want) {
			r.Errorf("the %s chain is %v, want %v", name, disks[0].Chain, want)
		}
	}
	if w.Exists(OverlayPath) {
		r.Errorf("the overlay is left")
	}
	if g := w.Guards.Guarded(); len(g) > 0 {
		r.Errorf("guards are left: %v", g)
	}
	if left := w.SnapshotsOf(w.Src.Path); !slices.Equal(left, w.Snapshots) {
		r.Errorf("src has the snapshots %v, want %v", left, w.Snapshots)
	}
	if left := w.Blobs.Keys(); len(left) > 0 {
		r.Errorf("the journal still has %v", left)
	}
	if err := w.larger.untouched(w.Fake); err != nil {
		r.Errorf("%v", err)
	}
	if w.Exists(SrcPath) == w.SrcGoes {
		r.Errorf("src is there: %t", !w.SrcGoes)
	}
	w.Mu.Lock()
	for _, wrong := range w.definition.wrong {
		r.Errorf("%s", wrong)
	}
	w.Mu.Unlock()
	for _, base := range w.Bases {
		if info, err := w.Fake.Info(base.Path); err != nil || info.Written != w.basesWritten {
			r.Errorf("base image %s was written: %+v (%v)", base.Path, info, err)
		}
	}
	return errors.Join(r.Problems...)
}

// ActiveStates are the states with a process.
var ActiveStates = []hv.State{hv.StateRunning, hv.StatePaused}
