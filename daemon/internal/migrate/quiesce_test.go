// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

// stopAt stops the daemon as soon as the journal has the beginning of a step. The channel is closed
// when it has stopped.
func (d *daemon) stopAt(step string) <-chan struct{} {
	stopped := make(chan struct{})
	d.journal.AfterAppend(func(r op.Record) {
		if r.Step != step || r.Kind != op.EventStarted {
			return
		}
		d.journal.AfterAppend(nil)
		go func() {
			defer close(stopped)
			d.manager().Monitor.Quiesce(context.Background())
			d.Halt()
		}()
		pass(time.Millisecond) // so that the stop has begun
	})
	return stopped
}

// The daemon is stopped as soon as a record of the switch is stored, at each record. It leaves the
// guest running, and the next daemon ends the migration.
func TestADaemonThatStopsLeavesNoGuestPaused(t *testing.T) {
	for _, at := range []string{"mirror", "pause", "drain", "name_dst", "pivot", "resume", "settle"} {
		t.Run(at, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCopied)
				stopped := d.stopAt(at)
				d.completes(mig)
				<-stopped
				dom, err := d.world.Fake.Domain(context.Background(), testInstance)
				must(t, err)
				if dom.State != hv.StateRunning {
					t.Errorf("a daemon that was stopped at %s left the guest %s", at, dom.State)
				}
				d.Boot(nil)
				d.moved(d.until(mig.ID, api.MigrationCompleted))
			})
		})
	}
}

func TestADaemonThatStopsLetsASavedGuestWake(t *testing.T) {
	for _, name := range instance.WakingSteps() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				awake := make(chan struct{})
				restore := op.Plan{Kind: "restore", Steps: []op.Step{{Name: name, Do: func(context.Context, *op.Run) error {
					<-awake
					return nil
				}}}}
				journal := optest.NewJournal()
				runner := optest.NewRunner(journal)
				runner.Register(restore)
				defer runner.Stop()
				w := migratetest.NewWorld(t, hv.StateRunning)
				g := New(move.Config{}, w.Ports(), runner, journal, nil, slog.New(slog.DiscardHandler))
				must(t, runner.Submit(t.Context(), op.Op{ID: "a", Kind: "restore"}))
				synctest.Wait()
				out := make(chan struct{})
				go func() { g.Monitor.Quiesce(t.Context()); close(out) }()
				select {
				case <-out:
					t.Error("it did not wait")
				case <-time.After(time.Second):
				}
				close(awake)
				<-out
			})
		})
	}
}
