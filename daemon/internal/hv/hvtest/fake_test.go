// SPDX-License-Identifier: Apache-2.0

package hvtest_test

import (
	"errors"
	"fmt"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

func TestFakeKeepsThePromisesOfTheHypervisor(t *testing.T) {
	f := hvtest.New()
	f.AddPool(hv.PoolInfo{
		Name: "images", Type: "dir", Path: "/pool", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 39,
	})
	env := &fakeEnv{fake: f, refused: make(map[string]error), tokens: make(map[string]string)}
	f.OnStart = func(id string) error { return env.hook(id, "") }
	f.OnStartToken = env.hook
	hvtest.Conformance(t, []hvtest.Env{env}, "")
	f.AssertNoWriteLost(t)
}

func TestFakeKeepsThePromisesOfAHypervisorWithALockManager(t *testing.T) {
	f := hvtest.New()
	f.UseLockManager("")
	hvtest.LeaseConformance(t, &fakeEnv{fake: f, refused: make(map[string]error), tokens: make(map[string]string)})
	f.AssertNoWriteLost(t)
}

func (e *fakeEnv) Leased(_ testing.TB, path string) bool { return e.fake.Leased(path) }

func (e *fakeEnv) LeaseElsewhere(_ testing.TB, path string) func() {
	e.fake.LeaseElsewhere(path, true)
	return func() { e.fake.LeaseElsewhere(path, false) }
}

func (e *fakeEnv) OwnerResumes(tb testing.TB, id string) {
	tb.Helper()
	e.do(tb, e.fake.Resume(tb.Context(), id))
}

// fakeEnv is the conformance suite's view of a Fake.
type fakeEnv struct {
	fake    *hvtest.Fake
	paths   int
	refused map[string]error
	tokens  map[string]string
}

func (e *fakeEnv) Hypervisor() hv.Hypervisor { return e.fake }
func (e *fakeEnv) Pool(testing.TB) string    { return "images" }
func (e *fakeEnv) do(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (e *fakeEnv) Path(_ testing.TB, name string) string {
	e.paths++
	return path.Join("/images", fmt.Sprint(e.paths), name)
}

func (e *fakeEnv) CreateImage(tb testing.TB, path, format string, sizeBytes int64) {
	e.do(tb, e.fake.CreateImage(path, format, sizeBytes))
}

func (e *fakeEnv) CreateOverlay(tb testing.TB, path string, backing hv.Image, sizeBytes int64) {
	e.do(tb, e.fake.CreateOverlay(path, backing, sizeBytes))
}

func (e *fakeEnv) BlockDevice(tb testing.TB, sizeBytes int64) string {
	device := e.Path(tb, "device")
	e.CreateImage(tb, device, hvtest.Raw, sizeBytes)
	return device
}

func (e *fakeEnv) CreateOnDevice(tb testing.TB, path string, sizeBytes int64) {
	e.do(tb, e.fake.CreateOnDevice(path, sizeBytes))
}

func (e *fakeEnv) DisableBitmap(tb testing.TB, path, name string) {
	e.do(tb, e.fake.DisableBitmap(path, name))
}

func (e *fakeEnv) AddBitmap(tb testing.TB, path, name string) {
	e.do(tb, e.fake.AddBitmap(path, name))
}

func (e *fakeEnv) Export(tb testing.TB, sizeBytes int64) hv.Image {
	export := hv.Image{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: "nbd+unix:///web?socket=" + e.Path(tb, "socket")}
	e.CreateImage(tb, export.Path, hvtest.Raw, sizeBytes)
	return export
}

func (e *fakeEnv) WriteImage(tb testing.TB, img hv.Image, block int64, value byte) {
	e.do(tb, e.fake.WriteBlock(img.Path, block, uint64(value)))
}

func (e *fakeEnv) CheckImage(tb testing.TB, img hv.Image, block int64, value byte) {
	content, err := e.fake.ReadImage(img.Path)
	e.do(tb, err)
	if got := content[block]; got != uint64(value) {
		tb.Errorf("block %d of %s = %d, want %d", block, img.Path, got, value)
	}
}

func (e *fakeEnv) Define(tb testing.TB, d hv.Domain) {
	e.do(tb, errors.Join(e.fake.Define(d), e.fake.SetUnplug(d.ID, hvtest.UnplugWaits)))
	tb.Cleanup(func() {
		if err := e.fake.Destroy(d.ID); err != nil && !errors.Is(err, hv.ErrNotActive) {
			tb.Error(err)
		}
		e.do(tb, e.fake.Undefine(d.ID))
	})
}

func (e *fakeEnv) Start(tb testing.TB, id string)   { e.do(tb, e.fake.Start(id)) }
func (e *fakeEnv) Destroy(tb testing.TB, id string) { e.do(tb, e.fake.Destroy(id)) }

func (e *fakeEnv) GuestWrite(tb testing.TB, id, target string, block int64, value byte) {
	e.do(tb, e.fake.GuestWrite(id, target, block, uint64(value)))
}

func (e *fakeEnv) CheckGuest(tb testing.TB, id, target string, block int64, value byte) {
	got, err := e.fake.GuestRead(id, target, block)
	e.do(tb, err)
	if got != uint64(value) {
		tb.Errorf("guest reads %d from block %d of %s, want %d", got, block, target, value)
	}
}

func (e *fakeEnv) LetGo(tb testing.TB, id, target string) { e.do(tb, e.fake.ReleaseDevice(id, target)) }

func (e *fakeEnv) BeginBackup(tb testing.TB, id, target string) func() {
	tb.Helper()
	e.do(tb, e.fake.BeginBackup(id, target))
	return func() { e.do(tb, e.fake.EndBackup(id, target)) }
}

func (e *fakeEnv) Refuse(_ testing.TB, id, why string) func() {
	e.refused[id] = errors.New(why)
	return func() { delete(e.refused, id) }
}

func (e *fakeEnv) RefuseWithout(_ testing.TB, id, token string) { e.tokens[id] = token }

func (e *fakeEnv) hook(id, token string) error {
	if want := e.tokens[id]; token != want && want != "" {
		return errors.New("it has no token")
	}
	return e.refused[id]
}

const (
	domain = "5f6d9a53-0000-4000-8000-000000000001"
	size   = 16 * hvtest.BlockSize
)

var (
	src     = hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/src"}
	dst     = hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/dst"}
	overlay = hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: "/overlay"}
)

// newGuest returns a running domain with an overlay on its disk, where block 1 differs from src,
// and a dst that equals src.
func newGuest(t *testing.T) *hvtest.Fake {
	t.Helper()
	f := hvtest.New()
	f.SetStep(0)
	must(t,
		f.CreateImage(src.Path, src.Format, size),
		f.CreateImage(dst.Path, dst.Format, size),
		f.CreateOverlay(overlay.Path, src, size),
		f.WriteBlock(src.Path, 0, 10),
		f.Copy(src.Path, dst.Path),
		f.Define(hv.Domain{ID: domain, Name: "guest", Config: []hv.Disk{
			{Target: "vda", Device: "disk", Chain: []hv.Image{src}, Terminated: true},
		}}),
		f.Start(domain),
		f.PutOverlay(t.Context(), domain, "vda", overlay),
		f.GuestWrite(domain, "vda", 1, 11),
	)
	return f
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, f *hvtest.Fake, want map[int64]uint64) {
	t.Helper()
	got, err := f.AuthoritativeContent(domain, "vda")
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

func TestShallowCopyWithoutAnOverlayZeroesTheTarget(t *testing.T) {
	f := newGuest(t)
	must(t,
		f.Destroy(domain),
		f.SetConfigChain(t.Context(), domain, "vda", []hv.Image{src}),
		f.Start(domain),
		f.BlockCopy(t.Context(), domain, "vda", dst, hv.BlockCopyOptions{Shallow: true}),
	)
	content, err := f.ReadImage(dst.Path)
	must(t, err)
	if len(content) != 0 {
		t.Errorf("dst holds %v, want zeros: QEMU does a full copy and zeroes first", content)
	}
}

func TestAsynchronousMirrorLagsAndThePivotCatchesUp(t *testing.T) {
	f := newGuest(t)
	must(t, f.BlockCopy(t.Context(), domain, "vda", dst, hv.BlockCopyOptions{Shallow: true}))
	f.Step(10)
	must(t, f.GuestWrite(domain, "vda", 2, 12))
	if content, _ := f.ReadImage(dst.Path); content[2] != 0 {
		t.Error("an asynchronous mirror wrote at once")
	}
	must(t, f.Pivot(t.Context(), domain, "vda"))
	wantContent(t, f, map[int64]uint64{0: 10, 1: 11, 2: 12})
	f.AssertNoWriteLost(t)
}

func TestStaleOverlayShadowsNewerData(t *testing.T) {
	f := newGuest(t)
	must(t, f.CommitActive(t.Context(), domain, "vda", 0))
	f.Step(10)
	must(t,
		f.Pivot(t.Context(), domain, "vda"),
		f.GuestWrite(domain, "vda", 1, 99),
		f.Destroy(domain),
		// The state after a crash if the definition had not been rewritten.
		f.SetConfigChain(t.Context(), domain, "vda", []hv.Image{overlay, src}),
	)
	wantContent(t, f, map[int64]uint64{0: 10, 1: 11})
	probe := &recorder{TB: t}
	f.AssertNoWriteLost(probe)
	if !probe.failed {
		t.Error("AssertNoWriteLost did not notice a lost write")
	}
}

// recorder is a testing.TB that only records a failure.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestAssertCleanNoticesWhatIsLeft(t *testing.T) {
	for name, leave := range map[string]func(*hvtest.Fake) error{
		"job": func(f *hvtest.Fake) error {
			return f.BlockCopy(t.Context(), domain, "vda", dst, hv.BlockCopyOptions{Shallow: true})
		},
		"pause":       func(f *hvtest.Fake) error { return f.Suspend(t.Context(), domain) },
		"write limit": func(f *hvtest.Fake) error { return f.PutWriteLimit(t.Context(), domain, "vda", 1) },
		"overlay":     func(f *hvtest.Fake) error { return f.CreateOverlay("/left", src, size) },
		"removal of an open image": func(f *hvtest.Fake) error {
			return f.Remove(src.Path)
		},
		"resume against a person": func(f *hvtest.Fake) error {
			return errors.Join(f.SuspendByUser(domain), f.Resume(t.Context(), domain))
		},
	} {
		f := newGuest(t)
		f.AssertClean(t)
		must(t, leave(f))
		probe := &recorder{TB: t}
		f.AssertClean(probe)
		if !probe.failed {
			t.Errorf("%s: not noticed", name)
		}
	}
}

func TestGuestOfAFullOverlayIsPausedAndLosesNothing(t *testing.T) {
	f := newGuest(t)
	must(t, f.SetFull(overlay.Path, true))
	if err := f.GuestWrite(domain, "vda", 3, 13); !errors.Is(err, hvtest.ErrPaused) {
		t.Fatalf("GuestWrite = %v, want ErrPaused", err)
	}
	d, err := f.Domain(t.Context(), domain)
	must(t, err)
	if d.State != hv.StatePaused || d.PauseReason != hv.PauseIOError {
		t.Errorf("domain is %s (%s), want paused by an I/O error", d.State, d.PauseReason)
	}
	must(t, f.SetFull(overlay.Path, false), f.Resume(t.Context(), domain), f.GuestWrite(domain, "vda", 3, 13))
	f.AssertNoWriteLost(t)
}

func TestToolsAreKeptOffImagesThatAreOpen(t *testing.T) {
	f := newGuest(t)
	for call, err := range map[string]error{
		"copy onto src":        f.Copy(dst.Path, src.Path),
		"copy of the overlay":  f.Copy(overlay.Path, dst.Path),
		"commit":               f.CommitOffline(overlay.Path, dst),
		"rebase":               f.Rebase(overlay.Path, dst),
		"write under a guest":  f.WriteBlock(overlay.Path, 0, 1),
		"second start of disk": f.BlockCopy(t.Context(), domain, "vda", src, hv.BlockCopyOptions{}),
	} {
		if !errors.Is(err, hvtest.ErrLocked) {
			t.Errorf("%s = %v, want ErrLocked", call, err)
		}
	}
	must(t, f.Copy(src.Path, dst.Path)) // src is only read by now
}

func TestStartIsRefusedWithoutItsImages(t *testing.T) {
	f := newGuest(t)
	must(t, f.Destroy(domain), f.Remove(src.Path))
	if err := f.Start(domain); err == nil {
		t.Error("the domain started without the backing image")
	}
}

func TestOfflineFoldOntoDst(t *testing.T) {
	f := newGuest(t)
	must(t, f.Destroy(domain), f.Rebase(overlay.Path, dst))
	for range 2 { // it may be repeated
		must(t, f.CommitOffline(overlay.Path, dst))
	}
	must(t, f.SetConfigChain(t.Context(), domain, "vda", []hv.Image{dst}), f.Remove(overlay.Path))
	f.AssertNoWriteLost(t)
	f.AssertClean(t)
	must(t, f.Start(domain))
}

func TestFaultsHappenAtTheirCall(t *testing.T) {
	ctx, f := t.Context(), newGuest(t)
	broken := errors.New("broken")

	f.Inject(hvtest.Fault{Call: "Suspend", Nth: 2, Err: broken})
	must(t, f.Suspend(ctx, domain), f.Resume(ctx, domain))
	if err := f.Suspend(ctx, domain); !errors.Is(err, broken) {
		t.Errorf("second Suspend = %v, want the injected error", err)
	}
	if d, _ := f.Domain(ctx, domain); d.State != hv.StateRunning {
		t.Error("a call that failed before its effect had one")
	}

	// The connection breaks before the answer arrives.
	f.Inject(hvtest.Fault{Call: "Suspend", After: true, Do: f.Disconnect})
	if err := f.Suspend(ctx, domain); !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("Suspend = %v, want ErrUnavailable", err)
	}
	if _, err := f.Domain(ctx, domain); !errors.Is(err, hv.ErrUnavailable) || f.Up() {
		t.Errorf("Domain without a connection = %v, want ErrUnavailable", err)
	}
	f.Reconnect()
	d, err := f.Domain(ctx, domain)
	must(t, err)
	if d.State != hv.StatePaused {
		t.Error("the call that was cut off had no effect")
	}
	must(t, f.Resume(ctx, domain))
	f.Inject(hvtest.Fault{Call: "Suspend", Do: func() { must(t, f.Crash(domain)) }})
	if err := f.Suspend(ctx, domain); !errors.Is(err, hv.ErrNotActive) {
		t.Errorf("Suspend of a domain that just crashed = %v, want ErrNotActive", err)
	}
	if n := len(f.Calls()); n == 0 {
		t.Error("no calls were noted")
	}
}

func TestHostRebootStartsWhatHasAutostartOnItsDefinition(t *testing.T) {
	f := newGuest(t)
	if err := f.HostReboot(); err != nil {
		t.Fatal(err)
	}
	d, err := f.Domain(t.Context(), domain)
	must(t, err)
	if d.State != hv.StateStopped {
		t.Errorf("a domain without autostart is %s after a reboot of the host", d.State)
	}
	f.AssertNoWriteLost(t)
}

func TestSavedDomainStartsWithTheChainOfThen(t *testing.T) {
	f := newGuest(t)
	must(t, f.Save(domain), f.SetConfigChain(t.Context(), domain, "vda", []hv.Image{dst}), f.Start(domain))
	d, err := f.Domain(t.Context(), domain)
	must(t, err)
	if got := d.LiveDisk("vda").Top(); got != overlay {
		t.Errorf("a saved domain runs on %s, want the chain it was saved with", got.Path)
	}
}
