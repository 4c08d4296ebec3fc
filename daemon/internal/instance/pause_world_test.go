// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

const (
	pausedWeb = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0001"
	pausedDB  = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0002"
	pausedVol = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0003"
	pausedMig = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0004"

	pausedSrc, pausedDst = "/old/vol.raw", "/new/vol.raw"
	pausedSize           = 32 * hvtest.BlockSize
	pausedGeneration     = 2
)

// pauseWorld is a host with two instances that share a volume, locked by a migration. The save
// images are real files.
type pauseWorld struct {
	places places
	*hvtest.Fake
	saveDir string
	guards  *hosttest.Guards
	images  *hosttest.Images
	journal *optest.Journal
	boots   int // of the host; a starting daemon has the latest

	mu sync.Mutex
	// at is the registry's location of the volume, lockedBy the owner of its lock; down reports
	// that the registry does not answer.
	at       string
	lockedBy string
	down     bool
	// planted is the volume's location in a pool, if it is in one.
	planted api.Location
	// refused are the permissions that the registry refuses; asked are those requested.
	refused map[string]bool
	asked   []string
	// unmovable is the refusal of any move of the volume.
	unmovable error
	// second is an attachment of web's other volume, if it has one.
	second *api.Attachment
	// wrote is the refusal of a guest that wrote after the last read of its changed blocks.
	wrote error
}

// newPauseWorld returns a host with instances in these states: web, and db if there is a second
// one.
func newPauseWorld(t *testing.T, states ...hv.State) *pauseWorld {
	t.Helper()
	w := &pauseWorld{
		Fake: hvtest.New(), saveDir: t.TempDir(), journal: optest.NewJournal(),
		guards: hosttest.NewGuards(nil), at: pausedSrc, lockedBy: pausedMig,
	}
	w.images = &hosttest.Images{Fake: w.Fake, Users: map[string]string{}}
	w.OnStart, w.OnStartToken = w.guards.Hook, w.guards.HookWithToken
	for _, path := range []string{pausedSrc, pausedDst} {
		must(t, w.CreateImage(path, hvtest.Raw, pausedSize))
	}
	for i, state := range states {
		id := []string{pausedWeb, pausedDB}[i]
		must(t, w.Define(hv.Domain{ID: id, Name: nameOf(id), MemoryBytes: 1 << 30, Config: []hv.Disk{{
			Target: "vdb", Bus: "virtio", Device: "disk", Terminated: true, Shareable: len(states) > 1,
			Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: pausedSrc}},
		}}}))
		if state.Active() {
			must(t, w.Start(id))
			must(t, w.GuestWrite(id, "vdb", int64(i), uint64(i)+1))
		}
		if state == hv.StatePaused {
			must(t, w.SuspendByUser(id))
		}
	}
	return w
}

func nameOf(id string) string {
	if id == pausedWeb {
		return "web"
	}
	return "db"
}

func (w *pauseWorld) location(path string) api.Location {
	if path == w.planted.Path {
		return w.planted
	}
	return api.Location{Path: path, Format: api.FormatRaw, SizeBytes: pausedSize}
}

func (w *pauseWorld) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// ask makes a call of the registry.
func (w *pauseWorld) ask() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return api.Errorf(api.CodeRegistryUnavailable, "the registry is down")
	}
	return nil
}

// Volume implements Site.
func (w *pauseWorld) Volume(context.Context, string) (api.Volume, error) {
	return api.Volume{ID: pausedVol, Name: "vol", Multiattach: true, Generation: pausedGeneration}, w.ask()
}

// Instance implements Site.
func (w *pauseWorld) Instance(_ context.Context, ref string) (api.Instance, error) {
	err := w.ask()
	w.mu.Lock()
	defer w.mu.Unlock()
	return api.Instance{ID: ref, Name: nameOf(ref), Host: "alpha", Locked: w.lockedBy != "", LockedBy: w.lockedBy}, err
}

// Attachments implements Site.
func (w *pauseWorld) Attachments(_ context.Context, _, instance string) ([]api.Attachment, error) {
	err := w.ask()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []api.Attachment
	for _, id := range []string{pausedWeb, pausedDB} {
		if instance == "" || instance == id {
			all = append(all, api.Attachment{VolumeID: pausedVol, InstanceID: id, DiskAttachment: api.DiskAttachment{Device: "vdb"}, Location: w.location(w.at)})
		}
	}
	if w.second != nil && instance != pausedDB {
		all = append(all, *w.second)
	}
	return all, err
}

// TransitionInstance implements Site.
func (w *pauseWorld) TransitionInstance(context.Context, string, string, api.InstanceTransition) (api.ShelvedInstance, error) {
	return api.ShelvedInstance{}, errors.New("no instance is shelved here")
}

// PermitPause implements Site.
func (w *pauseWorld) PermitPause(_ context.Context, _, migration string, in api.PausePermit) (api.Migration, error) {
	if err := w.ask(); err != nil {
		return api.Migration{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, in.To)
	if w.refused[in.To] {
		return api.Migration{}, api.Errorf(api.CodeStateForbidden, "others have run on")
	}
	return api.Migration{ID: migration}, nil
}

// pauseMigrations are the migrations of the world's host.
type pauseMigrations struct{ w *pauseWorld }

// recorded finds no contradiction between journal and registry.
func recorded(context.Context, string) error { return nil }

func (pauseMigrations) List(context.Context, bool) ([]api.Migration, error) { return nil, nil }
func (pauseMigrations) Switching(string) bool                               { return false }
func (pauseMigrations) MayStart(context.Context, string) error              { return nil }

func (m pauseMigrations) StoodStill(context.Context, string, string) error {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return m.w.wrote
}

func (pauseMigrations) Misnamed(context.Context, string, bool) ([]hv.NamedChain, error) {
	return nil, nil
}

func (pauseMigrations) Standing(context.Context, string) (bool, error) { return false, nil }
func (pauseMigrations) NameStanding(context.Context, string) error     { return nil }

func (m pauseMigrations) CheckPaused(context.Context, api.Volume, api.Attachment, []string) error {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return m.w.unmovable
}

// KnownInstance implements Known.
func (w *pauseWorld) KnownInstance(context.Context, string) (api.Instance, bool) {
	return api.Instance{}, false
}

// mount gives the volume's image another user.
func (w *pauseWorld) mount() {
	w.images.Mu.Lock()
	defer w.images.Mu.Unlock()
	for _, path := range []string{pausedSrc, pausedDst} {
		w.images.Users[path] = "a mount"
	}
}

func (w *pauseWorld) newManager(runner *op.Runner) *Manager {
	host := func(context.Context) (Host, error) { return Host{ID: "host-alpha", Name: "alpha", Epoch: 1}, nil }
	return New(Config{SaveDir: w.saveDir, BootID: fmt.Sprint("boot-", w.boots)}, Ports{
		Domains: w, Definitions: w, Devices: w, Power: w, Memory: w, Registry: w, Guards: w.guards, Locations: onlyPlaces{of: &w.places}, Images: w.images, Known: w, Migrations: pauseMigrations{w}, MovingGuests: pauseMigrations{w}, Parts: pauseMigrations{w}, Recorded: recorded, Report: func(context.Context) error { return nil },
	}, runner, w.journal, host, slog.New(slog.DiscardHandler))
}

// copied plays the copying host: afterwards dst has the content of src, and the registry has dst.
func (w *pauseWorld) copied() error {
	if n := w.Writers(pausedSrc); n > 0 {
		return fmt.Errorf("src is copied and %d writers have it open", n)
	}
	if err := w.Copy(pausedSrc, pausedDst); err != nil {
		return err
	}
	w.set(func() { w.at = pausedDst })
	return nil
}

// memories returns the names of the save images.
func (w *pauseWorld) memories() []string {
	entries, err := os.ReadDir(w.saveDir)
	if err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// as returns how an instance differs from the restored state: in this state, on this image, without
// guard and save image, and with all acknowledged writes of its guest.
func (w *pauseWorld) as(id string, state hv.State, at string) error {
	r := &hosttest.Recorder{}
	w.AssertNoWriteLost(r)
	w.AssertClean(r)
	dom, err := w.Fake.Domain(context.Background(), id)
	if err != nil {
		return err
	}
	if dom.State != state {
		r.Errorf("%s is %s, and has to be %s", dom.Name, dom.State, state)
	}
	uses := func(d *hv.Disk) bool { return d != nil && len(d.Chain) == 1 && d.Chain[0].Path == at }
	if !uses(dom.ConfigDisk("vdb")) || (dom.State.Active() && !uses(dom.LiveDisk("vdb"))) {
		r.Errorf("%s has %v live and %v in its definition, and has to be on %s", dom.Name, dom.Live, dom.Config, at)
	}
	if guards, err := w.guards.Of(id); err != nil || len(guards) > 0 {
		r.Errorf("guards are left: %v (%v)", guards, err)
	}
	if w.guards.Issued(id) {
		r.Errorf("a start token is left")
	}
	if left := w.memories(); len(left) > 0 {
		r.Errorf("memory is left: %v", left)
	}
	return errors.Join(r.Problems...)
}

// asleep returns the faults of web if it must be saved and guarded.
func (w *pauseWorld) asleep(hadMemory bool) error {
	return errors.Join(w.inState(hv.StateStopped), w.kept(hadMemory))
}

// suspended returns the faults of web if it must be suspended and guarded.
func (w *pauseWorld) suspended(was hv.State) error {
	if was == hv.StateRunning {
		was = hv.StatePaused
	}
	return errors.Join(w.inState(was), w.kept(false))
}

// ready returns the faults of web if it must be restored and paused.
func (w *pauseWorld) ready(was hv.State) error {
	want := hv.StateStopped
	if was.Active() {
		want = hv.StatePaused
	}
	return errors.Join(w.inState(want), w.kept(was.Active()))
}

// notGoneOn returns how web differs from an instance that was saved and must not have run since:
// off, or restored and paused.
func (w *pauseWorld) notGoneOn(hadMemory bool) error {
	err := w.inState(hv.StateStopped)
	if hadMemory && err != nil {
		err = w.inState(hv.StatePaused)
	}
	return errors.Join(err, w.kept(hadMemory))
}

func (w *pauseWorld) inState(want hv.State) error {
	dom, err := w.Fake.Domain(context.Background(), pausedWeb)
	if err == nil && dom.State != want {
		err = fmt.Errorf("%s is %s", dom.Name, dom.State)
	}
	return err
}

// kept returns the faults of web's guard, and of its one save image.
func (w *pauseWorld) kept(hadMemory bool) (err error) {
	const id = pausedWeb
	if guards, e := w.guards.Of(id); e != nil || len(guards) != 1 || guards[0].Owner != "pause "+pausedMig {
		err = errors.Join(e, fmt.Errorf("its guards are %v", guards))
	}
	if w.guards.Issued(id) {
		err = errors.Join(err, errors.New("a start token is left"))
	}
	want := ""
	if hadMemory {
		want = id + "." + pausedMig + ".ram"
	}
	if left := strings.Join(w.memories(), " "); left != want {
		err = errors.Join(err, fmt.Errorf("its memory is in %q", left))
	}
	return err
}

// pauseDaemon is a manager on a world, which may die and start again.
type pauseDaemon struct {
	*hosttest.Daemon[*Manager]
	t     *testing.T
	world *pauseWorld
}

func startPauseDaemon(t *testing.T, w *pauseWorld) *pauseDaemon {
	t.Helper()
	return &pauseDaemon{t: t, world: w, Daemon: hosttest.Start(t, hosttest.Program[*Manager]{
		Runner: op.Config{Journal: w.journal, Describe: describe},
		New:    w.newManager,
	})}
}

func (d *pauseDaemon) now() *Manager {
	m, _ := d.Now()
	return m
}

// reboot is a power cut of the host; the next daemon has the next boot.
func (d *pauseDaemon) reboot() {
	d.RestartAfter(func() {
		if err := d.world.HostReboot(); err != nil {
			d.t.Error(err)
		}
		d.world.boots++
	})
}

// suspend requests a suspend like the registry, until its op has ended.
func (d *pauseDaemon) suspend(id, instance string) op.Status {
	return d.ask(id, func(g *Manager) error {
		_, err := g.BeginSuspend(context.Background(), id, instance, api.InstanceSuspend{MigrationID: pausedMig, VolumeID: pausedVol})
		return err
	})
}

// save suspends and then saves the instance pausedWeb.
func (d *pauseDaemon) save(id string) op.Status {
	if st := d.suspend(id+".suspend", pausedWeb); st.State != op.StateDone {
		return st
	}
	return d.saveOnly(id, pausedWeb)
}

func (d *pauseDaemon) saveOnly(id, instance string) op.Status {
	return d.ask(id, func(g *Manager) error {
		_, err := g.BeginSave(context.Background(), id, instance, api.InstanceSave{MigrationID: pausedMig, VolumeID: pausedVol})
		return err
	})
}

// restore restores and then resumes an instance.
func (d *pauseDaemon) restore(id, instance, at string) op.Status {
	if st := d.restorePaused(id, instance, at); st.State != op.StateDone {
		return st
	}
	return d.resume(id+".resume", instance, at)
}

func (d *pauseDaemon) restorePaused(id, instance, at string) op.Status {
	return d.restoreAs(id, instance, api.InstanceRestore{Location: d.world.location(at)})
}

func (d *pauseDaemon) restoreAs(id, instance string, in api.InstanceRestore) op.Status {
	in.MigrationID, in.VolumeID = pausedMig, pausedVol
	return d.ask(id, func(g *Manager) error {
		_, err := g.BeginRestore(context.Background(), id, instance, in)
		return err
	})
}

func (d *pauseDaemon) resume(id, instance, at string) op.Status {
	return d.ask(id, func(g *Manager) error {
		_, err := g.BeginResume(context.Background(), id, instance, api.InstanceResume{MigrationID: pausedMig, VolumeID: pausedVol, Location: d.world.location(at)})
		return err
	})
}

// ask repeats a call until it is answered, and awaits its op. A refusal counts as an undone op.
func (d *pauseDaemon) ask(id string, do func(g *Manager) error) op.Status {
	d.t.Helper()
	for range 500 {
		err := do(d.now())
		switch code := api.CodeOf(err); {
		case err == nil:
		case errors.Is(err, op.ErrStopped), errors.Is(err, op.ErrNotFound), code == api.CodeRegistryUnavailable, code == api.CodeHypervisorUnavailable, code == api.CodeJournalUnavailable:
			pass(time.Second)
			continue
		default:
			return op.Status{State: op.StateUndone, Failure: &op.Failure{Code: string(code), Message: err.Error()}}
		}
		st, err := d.now().admission.Runner.Status(context.Background(), id)
		if err == nil && (st.State.Final() || st.State == op.StateNeedsOperator) {
			return st
		}
		pass(time.Second)
	}
	d.t.Fatalf("op %s does not end", id)
	return op.Status{}
}
