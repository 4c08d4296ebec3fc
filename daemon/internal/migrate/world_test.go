// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// The one volume and the one instance of a world.
const (
	testInstance  = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0001"
	testVolume    = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0002"
	testMigration = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0003"
	testSrcAtt    = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0004"
	testDstAtt    = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0005"
	testHost      = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0006"

	testBlocks  = 32
	testSize    = testBlocks * hvtest.BlockSize
	srcPath     = "/old/vol.raw"
	dstPath     = "/new/vol-6f0f7f6e.raw"
	overlayPath = "/overlays/" + testMigration + ".qcow2"
)

// world is a host in memory: one instance that writes whenever anybody looks,
// one volume, two pools.
type world struct {
	*hvtest.Fake
	registry *fakeRegistry
	guards   *fakeGuards
	images   *fakeImages
	copier   *fakeCopier

	// mayMove is asked of the world's attachments.
	mayMove func() error
	// audited has what the audit trail was told.
	audited []string

	mu    sync.Mutex
	quiet bool
	// seen is shown, and may change, the next look.
	seen func(*hv.Domain)
	next uint64
	// ahead is by how much the host's clock is ahead.
	ahead atomic.Int64
}

// newWorld makes a host whose instance is in the given state on src.
func newWorld(t *testing.T, state hv.State) *world {
	t.Helper()
	w := &world{Fake: hvtest.New(), guards: newFakeGuards(), next: 1000}
	w.OnStart = w.guards.hook
	must(t, w.CreateImage(srcPath, hvtest.Raw, testSize))
	for b := range int64(testBlocks / 2) {
		must(t, w.WriteBlock(srcPath, b*2, uint64(b)+1))
	}
	w.AddPool(hv.PoolInfo{Name: "new", Type: "dir", Path: "/new", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
	must(t, w.Define(hv.Domain{ID: testInstance, Name: "web", Config: []hv.Disk{{
		Target: "vda", Bus: "virtio", Device: "disk", Serial: testVolume, Terminated: true,
		Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: srcPath}},
	}}}))
	w.registry = newFakeRegistry()
	w.images = &fakeImages{fake: w.Fake}
	w.copier = &fakeCopier{fake: w.Fake, done: map[string]bool{}, caps: map[string]int64{}}
	if state.Active() {
		must(t, w.Start(testInstance))
	}
	if state == hv.StatePaused {
		must(t, w.SuspendByUser(testInstance))
	}
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Domain lets the guest write a block whenever it is looked at.
func (w *world) Domain(ctx context.Context, id string) (*hv.Domain, error) {
	w.guestWrites()
	dom, err := w.Fake.Domain(ctx, id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.seen != nil {
		w.seen(dom)
		w.seen = nil
	}
	return dom, err
}

// setQuiet makes the guest write no more.
func (w *world) setQuiet() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = true
}

func (w *world) guestWrites() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet {
		return
	}
	w.next++
	// A guest that is off or paused does not write, which is no error here.
	_ = w.GuestWrite(testInstance, "vda", int64(w.next*7%testBlocks), w.next)
}

func (w *world) ports() Ports {
	mayMove := func(context.Context, string) error {
		if w.mayMove == nil {
			return nil
		}
		return w.mayMove()
	}
	return Ports{HV: w, Images: w.images, Copier: w.copier, Registry: w.registry, Guards: w.guards, MayMove: mayMove, Claims: w.claims(), Audit: w.audit, Clock: w.now}
}

// setClock sets the clock of the host forward; back, if by is negative.
func (w *world) setClock(by time.Duration) { w.ahead.Store(int64(by)) }

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func (w *world) audit(e api.EventPost) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.audited = append(w.audited, e.What+" "+e.Object)
}

func (w *world) audits() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.audited)
}

func (w *world) claims() *location.Claims {
	return &location.Claims{Site: w.registry, Pools: w.Pools, HostID: testHost}
}

// testSpec is the spec of the migration of the world's volume to the pool.
func testSpec(method string) Spec {
	s := Spec{
		MigrationID: testMigration, VolumeID: testVolume, VolumeName: "vol", InstanceID: testInstance, InstanceName: "web",
		Target: "vda", SrcAttachmentID: testSrcAtt, DstAttachmentID: testDstAtt, Host: testHost, Epoch: 1, Generation: 1,
		Src:       api.Location{Path: srcPath, Format: api.FormatRaw, SizeBytes: testSize},
		Dst:       api.Location{Pool: "new", Name: "vol-6f0f7f6e.raw", Path: dstPath, Format: api.FormatRaw, SizeBytes: testSize},
		CreateDst: true, Method: method, Verify: VerifyFull,
	}
	if method == MethodOverlay {
		s.Overlay = overlayPath
	}
	return s
}

// settled says what is wrong with a world in which no migration is in progress:
// the instance must be on the given image alone, nothing may be left, and
// nothing that the guest was told may be missing.
func (w *world) settled(at string) error {
	w.setQuiet()
	r := &recorder{}
	w.AssertNoWriteLost(r)
	w.AssertClean(r)
	dom, err := w.Fake.Domain(context.Background(), testInstance)
	if err != nil {
		return err
	}
	want := []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: at}}
	for name, disks := range map[string][]hv.Disk{"live": dom.Live, "persistent": dom.Config} {
		if len(disks) > 0 && !slices.Equal(disks[0].Chain, want) {
			r.Errorf("the %s chain is %v, want %v", name, disks[0].Chain, want)
		}
	}
	if w.Exists(overlayPath) {
		r.Errorf("the overlay is left")
	}
	if g := w.guards.all(); len(g) > 0 {
		r.Errorf("guards are left: %v", g)
	}
	if !w.Exists(srcPath) {
		r.Errorf("src is gone")
	}
	return errors.Join(r.problems...)
}

// recorder is the part of testing.TB that the fake's assertions need, for
// worlds that are judged by an error.
type recorder struct {
	testing.TB
	problems []error
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf(format, args...))
}

// fakeImages are the world's images as Images.
type fakeImages struct {
	fake   *hvtest.Fake
	closed string // a directory that QEMU does not pass
	shut   string // a directory in which QEMU opens nothing
	// onCreate is told how far a new image is, if it is set, and temporary is the name of
	// the newest before it was whole.
	onCreate  func(moment string)
	temporary string
	// resized is the size of every overlay that somebody has resized, 0 if nobody has.
	resized atomic.Int64
	// free is how much every directory has free, 0 for plenty.
	free atomic.Int64

	mu sync.Mutex
	// durable are the flushes and removals of images, and what was given back, in order.
	durable []string
	// rights are those that images were given.
	rights map[string]*image.Rights
}

func (i *fakeImages) note(what, path string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.durable = append(i.durable, what+" "+path)
}

func (i *fakeImages) Flush(_ context.Context, path string) error {
	i.note("flush", path)
	return nil
}

func (i *fakeImages) CreateOverlay(_ context.Context, path string, backing hv.Image, sizeBytes int64, rights *image.Rights) error {
	if empty, err := i.CheckOverlay(context.Background(), path, backing, sizeBytes); err == nil && empty {
		return nil
	}
	i.give(path, rights)
	return i.fake.CreateOverlay(path, backing, sizeBytes)
}

// Rights are the same for every image.
func (i *fakeImages) Rights(context.Context, string) (*image.Rights, error) {
	return &image.Rights{UID: 1000, GID: 1000, Mode: 0o640}, nil
}

func (i *fakeImages) GiveRights(_ context.Context, path string, rights *image.Rights) ([]string, error) {
	if _, err := i.fake.Info(path); err != nil {
		return nil, err
	}
	i.give(path, rights)
	return nil, nil
}

func (i *fakeImages) GiveBack(_ context.Context, path string, rights *image.Rights) ([]string, error) {
	if _, err := i.fake.Info(path); err != nil {
		return nil, err
	}
	i.note("give back", path)
	return nil, nil
}

func (i *fakeImages) give(path string, rights *image.Rights) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rights == nil {
		i.rights = map[string]*image.Rights{}
	}
	i.rights[path] = rights
}

func (i *fakeImages) CheckOverlay(_ context.Context, path string, backing hv.Image, sizeBytes int64) (bool, error) {
	info, err := i.fake.Info(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, image.ErrAbsent
	}
	if is := i.resized.Load(); is != 0 && err == nil {
		return false, &image.SizeError{Path: path, Bytes: is, WantBytes: sizeBytes}
	}
	if err == nil && (info.Backing != backing || info.SizeBytes != sizeBytes) {
		err = fmt.Errorf("%s is no overlay over %v of %d bytes", path, backing, sizeBytes)
	}
	return info.Allocated == 0, err
}

func (i *fakeImages) Fold(_ context.Context, overlay string, into hv.Image) error {
	return i.fake.CommitOffline(overlay, into.Path)
}

// Create makes the image under its temporary name first, as on a filesystem that has no
// files without a name.
func (i *fakeImages) Create(ctx context.Context, img hv.Image, sizeBytes int64, about image.NewFile) error {
	temporary := filepath.Join(filepath.Dir(img.Path), about.Temporary)
	i.temporary = temporary
	if err := i.fake.CreateImage(temporary, img.Format, sizeBytes); err != nil {
		return err
	}
	fingerprint, err := i.Fingerprint(ctx, temporary)
	if err == nil {
		i.moment("whole")
		i.give(img.Path, about.Rights)
		err = about.Whole(fingerprint)
	}
	if err == nil {
		i.moment("noted")
		err = i.fake.Link(temporary, img.Path)
		i.moment("linked")
	}
	return errors.Join(err, i.fake.Remove(temporary))
}

func (i *fakeImages) moment(name string) {
	if i.onCreate != nil {
		i.onCreate(name)
	}
}

func (i *fakeImages) Inspect(_ context.Context, path string, _ api.Format) (image.Info, error) {
	info, err := i.fake.Info(path)
	if errors.Is(err, fs.ErrNotExist) {
		return image.Info{}, image.ErrAbsent
	}
	return image.Info{
		SizeBytes: info.SizeBytes, AllocatedBytes: int64(info.Allocated) * hvtest.BlockSize,
		Block: strings.HasPrefix(path, "/dev/"),
	}, err
}

func (i *fakeImages) Stamp(_ context.Context, path string) (image.Stamp, error) {
	info, err := i.fake.Info(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = image.ErrAbsent
	}
	return image.Stamp{SizeBytes: info.SizeBytes, ModifiedNS: info.Written, Boot: i.fake.BootID()}, err
}

func (i *fakeImages) Fingerprint(_ context.Context, path string) (string, error) {
	info, err := i.fake.Info(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", image.ErrAbsent
	}
	return fmt.Sprintf("born %d", info.Born), err
}

func (i *fakeImages) InUse(context.Context, string) (string, error) { return "", nil }

func (i *fakeImages) Remove(_ context.Context, path string) error {
	i.note("remove", path)
	if err := i.fake.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (i *fakeImages) AllocatedBytes(path string) (int64, error) {
	info, err := i.fake.Info(path)
	return int64(info.Allocated) * hvtest.BlockSize, err
}

func (i *fakeImages) FreeBytes(string) (int64, error) {
	if free := i.free.Load(); free != 0 {
		return free, nil
	}
	return 1 << 40, nil
}

func (i *fakeImages) Reach(user hv.ProcessUser, dir string) error {
	if dir == i.closed {
		return &image.ReachError{User: user, Dir: dir, Mode: 0o700}
	}
	return nil
}

func (i *fakeImages) MayOpen(user hv.ProcessUser, path string) error {
	if _, err := i.fake.Info(path); err != nil {
		return err
	}
	if i.shut != "" && filepath.Dir(path) == i.shut {
		return &image.OpenError{User: user, Path: path}
	}
	return nil
}

// fakeCopier copies in the world's images. Gate, where set, holds a copy back
// until it is closed.
type fakeCopier struct {
	fake *hvtest.Fake
	gate chan struct{}
	// onCompare is told of each comparison, compareGate holds one back, and with
	// differs it finds a difference.
	onCompare   func()
	compareGate chan struct{}
	differs     bool

	mu   sync.Mutex
	done map[string]bool
	caps map[string]int64
	last CopyRequest
}

func (c *fakeCopier) Copy(ctx context.Context, req CopyRequest) (CopyResult, error) {
	req.Progress(Progress{Phase: "copy", BytesTotal: req.SizeBytes})
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
			return CopyResult{}, context.Cause(ctx)
		}
	}
	if err := c.fake.Copy(req.Src.Path, req.Dst.Path); err != nil {
		return CopyResult{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[req.Key], c.last = true, req
	return CopyResult{BytesTotal: req.SizeBytes, BytesCopied: req.SizeBytes, Verified: req.Verify}, nil
}

func (c *fakeCopier) Compare(ctx context.Context, src, dst hv.Image, _ int64, _ func(Progress)) error {
	if c.onCompare != nil {
		c.onCompare()
	}
	if c.compareGate != nil {
		select {
		case <-c.compareGate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if c.differs {
		return api.Errorf(api.CodeCopyMismatch, "the copy differs").With("offset", 0)
	}
	a, err := c.fake.ReadImage(src.Path)
	if err != nil {
		return err
	}
	b, err := c.fake.ReadImage(dst.Path)
	if err != nil {
		return err
	}
	for block := range int64(testBlocks) {
		if a[block] != b[block] {
			return api.Errorf(api.CodeCopyMismatch, "the copy differs").With("offset", block*hvtest.BlockSize)
		}
	}
	return nil
}

func (c *fakeCopier) Forget(_ context.Context, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.done, key)
	delete(c.caps, key)
	return nil
}

func (c *fakeCopier) SetCap(key string, bytesPerSecond int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.caps[key] = bytesPerSecond
	return nil
}

func (c *fakeCopier) Cap(key string) (bytesPerSecond int64, set bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytesPerSecond, set = c.caps[key]
	return bytesPerSecond, set, nil
}

// fakeGuards are guards in memory, with the hook that asks them.
type fakeGuards struct {
	mu      sync.Mutex
	reasons map[guard]string
}

type guard struct{ id, owner string }

func newFakeGuards() *fakeGuards { return &fakeGuards{reasons: map[guard]string{}} }

func (g *fakeGuards) Set(id, owner, reason string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reasons[guard{id, owner}] = reason
	return nil
}

func (g *fakeGuards) Clear(id, owner string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.reasons, guard{id, owner})
	return nil
}

func (g *fakeGuards) Has(id, owner string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.reasons[guard{id, owner}]
	return ok, nil
}

func (g *fakeGuards) Enforced() error { return nil }

func (g *fakeGuards) all() map[guard]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.reasons)
}

func (g *fakeGuards) hook(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for guard, reason := range g.reasons {
		if guard.id == id {
			return errors.New(reason)
		}
	}
	return nil
}

// fakeHistory is a migration whose copy is made and which is not completed.
type fakeHistory struct{ dst DstNote }

func (fakeHistory) Completed(context.Context, *Spec) (bool, error)      { return false, nil }
func (fakeHistory) Copied(context.Context, *Spec) (bool, error)         { return true, nil }
func (fakeHistory) Facts(context.Context, *Spec, string) (Facts, error) { return Facts{}, nil }
func (h fakeHistory) Dst(context.Context, *Spec) (DstNote, error)       { return h.dst, nil }
