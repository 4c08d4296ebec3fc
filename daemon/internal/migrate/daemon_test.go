// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/medium"
)

// The volume and the instance of a world.
const (
	testInstance  = migratetest.Instance
	testVolume    = migratetest.Volume
	testMigration = migratetest.Migration
	testSrcAtt    = migratetest.SrcAttachment
	testHost      = migratetest.Host
	testBlocks    = migratetest.Blocks
	testSize      = migratetest.Size
	srcPath       = migratetest.SrcPath
	dstPath       = migratetest.DstPath
	overlayPath   = migratetest.OverlayPath
)

var must, pass, savedSpec = expect.OK, hosttest.Pass, migratetest.NewSavedSpec

// daemon is a manager on a world, which may be stopped and started again on the same world and
// journal.
type daemon struct {
	*hosttest.Daemon[*Manager]
	t       *testing.T
	world   *migratetest.World
	journal *optest.Journal
	heard   heard
	typist  *hosttest.Operator
}

// manager is the present manager, runner its runner.
func (d *daemon) manager() *Manager  { m, _ := d.Now(); return m }
func (d *daemon) runner() *op.Runner { _, r := d.Now(); return r }

// newDaemon starts a daemon like run.go.
func newDaemon(t *testing.T, w *migratetest.World) *daemon {
	t.Helper()
	return newDaemonWith(t, w, &move.Config{})
}

// newDaemonWith is newDaemon with a part of a configuration.
func newDaemonWith(t *testing.T, w *migratetest.World, cfg *move.Config) *daemon {
	t.Helper()
	d := &daemon{t: t, world: w, journal: optest.NewJournal()}
	rules := location.Rules{
		AllowedPaths: []string{os.TempDir(), "/var", "/dev", "/run"}, Storage: w.Hypervisor(),
		RBD: rbd.Clusters{"5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11": {}}, NBDServers: []string{"nbd.example:10809"},
	}
	d.Daemon = hosttest.Start(t, hosttest.Program[*Manager]{
		Runner: op.Config{Journal: d.journal, Describe: request.Describe, Context: hv.WithOp},
		New: func(runner *op.Runner) *Manager {
			runner.OnFinished(func(st op.Status) { Notify(st, &d.heard) })
			host := func(context.Context) (move.Host, error) {
				return move.Host{ID: testHost, Epoch: w.Registry.ReportedEpoch(testHost)}, nil
			}
			now := *cfg
			now.OverlayDir, now.Rules = "/overlays", rules
			return New(now, w.Ports(), runner, d.journal, host, slog.New(slog.DiscardHandler))
		},
		Run: func(m *Manager, ctx context.Context) error {
			var room sync.WaitGroup
			defer room.Wait()
			if cfg.ThrottleFor > 0 {
				room.Go(func() { _ = m.Monitor.WatchRoom(ctx) })
			}
			return m.Run(ctx, func() {})
		},
	})
	return d
}

// halted begins the runner of a host that knows that it was fenced.
func halted(ctx context.Context, r *op.Runner) error {
	r.Halt()
	return r.FinishCritical(ctx)
}

var toNewPool = api.MigrationTarget{ToPool: "new"}

// migrate begins a `volume migrate` to the world's destination, and returns its id.
func (d *daemon) migrate() string { d.t.Helper(); return d.migrateTo(d.world.To) }

func (d *daemon) migrateTo(target api.MigrationTarget) string {
	d.t.Helper()
	mig, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
	must(d.t, err)
	return mig.ID
}

// begin makes a start by hand and waits until src is frozen.
func (d *daemon) begin(target api.MigrationTarget) api.Migration {
	d.t.Helper()
	mig, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target})
	must(d.t, err)
	return d.until(mig.ID, api.MigrationStarted)
}

// copyAndCancel copies the volume of a migration that was begun, and then cancels it.
func (d *daemon) copyAndCancel(id string) {
	d.t.Helper()
	_, _, err := d.manager().Copy(context.Background(), d.call(id))
	must(d.t, err)
	d.until(id, api.MigrationCopied)
	_, _, err = d.manager().Cancel(context.Background(), d.call(id))
	must(d.t, err)
	d.until(id, api.MigrationCancelled)
}

// moveTimeout is longer than any migration in a world, in fake time.
const moveTimeout = time.Hour

// until waits until the migration is in one of the states. It polls, in fake time, and does not
// follow the watch, since the daemon may restart.
func (d *daemon) until(id string, states ...api.MigrationState) api.Migration {
	d.t.Helper()
	for began := time.Now(); ; pass(50 * time.Millisecond) {
		synctest.Wait()
		mig, err := d.manager().Get(context.Background(), id)
		must(d.t, err)
		if slices.Contains(states, mig.State) {
			return mig
		}
		if mig.State.Final() || mig.State == api.MigrationNeedsOperator || time.Since(began) > moveTimeout {
			d.t.Fatalf("the migration is %s (phase %s, %v), want %v", mig.State, mig.Phase, mig.Error, states)
		}
	}
}

func (d *daemon) call(id string) Call {
	return Call{OpID: uuid.NewString(), Subject: id}
}

// completes requests the complete of a copied migration, and returns its id.
func (d *daemon) completes(mig api.Migration) string {
	d.t.Helper()
	_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
	must(d.t, err)
	return mig.ID
}

func (d *daemon) cancels(id string) string {
	d.t.Helper()
	_, _, err := d.manager().Cancel(context.Background(), d.call(id))
	must(d.t, err)
	return id
}

// ends requests a complete or a cancel, and checks that it ends well with nothing lost or left.
func (d *daemon) ends(mig api.Migration, cancel bool) {
	d.t.Helper()
	if cancel {
		d.until(d.cancels(mig.ID), api.MigrationCancelled)
		d.stayed()
		return
	}
	d.moved(d.until(d.completes(mig), api.MigrationCompleted))
}

// diesWhile makes the daemon do nothing while happen runs, as if it had died. Then another daemon
// starts.
func (d *daemon) diesWhile(happen func()) {
	d.world.Disconnect()
	d.journal.SetDown(true)
	go d.RestartAfter(func() {
		d.world.Reconnect()
		d.journal.SetDown(false)
		happen()
	})
}

// stride is the distance between the calls with a fault.
var stride = hosttest.Stride(13)

// atEveryCall repeats a trial on a world with an instance in a state, with something happening at
// its first call, then at its second, and so on.
func atEveryCall(t *testing.T, state hv.State, trial func(t *testing.T, d *daemon, n int) (happened bool)) {
	t.Helper()
	atEveryCallOn(t, migratetest.NewWorld, state, trial)
}

func atEveryCallOn(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, state hv.State, trial func(t *testing.T, d *daemon, n int) (happened bool)) {
	t.Helper()
	hosttest.EveryCall(t, stride, func(t *testing.T, n int) bool {
		return trial(t, newDaemon(t, world(t, state)), n)
	})
}

// inBubble runs a test in fake time on a world with an instance in a state.
func inBubble(t *testing.T, state hv.State, f func(t *testing.T, d *daemon)) {
	t.Helper()
	inBubbleOn(t, migratetest.NewWorld, state, f)
}

func inBubbleOn(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, state hv.State, f func(t *testing.T, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, newDaemon(t, world(t, state)))
	})
}

// moved checks that the volume ended at dst and nothing else changed.
func (d *daemon) moved(mig api.Migration) {
	d.t.Helper()
	img := rawImage(mig.Dst.Path)
	img.Format = string(mig.Dst.Format)
	switch {
	case !medium.Of(img.Path).Path:
		img.Type = hv.SourceNetwork
	case d.world.Images.Devices[img.Path], strings.HasPrefix(img.Path, "/dev/"):
		img.Type = hv.SourceBlock
	}
	img.LUKSSecret = d.world.Src.LUKSSecret
	if mig.Dst.IsSlice() {
		img.SliceBytes = mig.Dst.SizeBytes
	}
	if err := d.world.SettledOn(img); err != nil {
		d.t.Error(err)
	}
	if at := d.world.Registry.CurrentVolume().Location.Path; at != mig.Dst.Path {
		d.t.Errorf("the registry has the volume at %s, want %s", at, mig.Dst.Path)
	}
}

// stayed checks that the volume is on src as before the move.
func (d *daemon) stayed() {
	d.t.Helper()
	if err := d.world.SettledOn(d.world.Src); err != nil {
		d.t.Error(err)
	}
	if id := d.world.Registry.CurrentVolume().MigrationID; id != "" {
		d.t.Errorf("the registry still has the lock of migration %s", id)
	}
}
