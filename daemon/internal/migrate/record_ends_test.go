// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// The registry's database is restored from a backup from the time of a move that has since ended on
// its host.

// backup is the registry's state of its volume.
type backup struct {
	vol api.Volume
	row api.Migration
}

// hasBackup makes a backup while the migration waits for a call.
func (d *daemon) hasBackup(id string) backup {
	r := d.world.Registry
	r.Lock()
	defer r.Unlock()
	return backup{r.Vol, r.Rows[id]}
}

// restores replaces the registry by a backup, with the migration in a state, and accepts the
// restore.
func (d *daemon) restores(b backup, state api.MigrationState) {
	r := d.world.Registry
	r.Lock()
	clear(r.Rows)
	b.row.State = state
	r.Vol, r.Rows[b.row.ID] = b.vol, b.row
	r.Unlock()
	d.fenced()
}

func (d *daemon) wantEnded(mig api.Migration) {
	d.t.Helper()
	row, err := d.world.Registry.Migration(context.Background(), mig.ID)
	must(d.t, err)
	if row.State != mig.State {
		d.t.Errorf("the registry has the migration as %s, want %s", row.State, mig.State)
	}
	if mig.State == api.MigrationCompleted {
		d.moved(mig)
		return
	}
	d.stayed()
}

func TestARestoredRegistryHearsHowTheMovesEndedThatItHasOpen(t *testing.T) {
	for name, comesBack := range map[string]func(*daemon, api.Migration){
		"as the host rejoins, which asks the registry for nothing before it is back": func(d *daemon, _ api.Migration) {
			d.world.Registry.SetDown(true)
			d.rejoined()
			d.world.Registry.SetDown(false)
			pass(time.Minute)
		},
		"as the daemon starts, and the registry is away": func(d *daemon, _ api.Migration) {
			d.world.Registry.SetDown(true)
			d.Restart()
			pass(time.Minute)
			d.world.Registry.SetDown(false)
			d.world.Registry.Rejoin()
			pass(time.Minute)
		},
		"as the call is made again": func(d *daemon, mig api.Migration) {
			d.world.Registry.Rejoin()
			if mig.State == api.MigrationCancelled {
				d.cancels(mig.ID)
				return
			}
			d.completes(mig)
		},
	} {
		for _, cancel := range []bool{false, true} {
			for _, state := range []api.MigrationState{api.MigrationStarted, api.MigrationCopied, api.MigrationCompleting, api.MigrationNeedsOperator} {
				t.Run(strings.Join([]string{name, map[bool]string{true: "cancelled", false: "completed"}[cancel], string(state)}, ", "), func(t *testing.T) {
					inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
						mig := d.copied()
						b := d.hasBackup(mig.ID)
						d.ends(mig, cancel)
						d.world.GuestWrites()
						d.restores(b, state)
						mig = d.get(mig.ID)
						comesBack(d, mig)
						d.wantEnded(mig)
					})
				})
			}
		}
	}
}

// The present move began where the one before has ended, and the registry learns that first.
func TestAMoveThatBeganAfterTheBackupIsTakenBackToWhereTheOneBeforeEnded(t *testing.T) {
	for name, copies := range map[string]bool{"waits for a call": false, "is copied": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				before := d.copied()
				b := d.hasBackup(before.ID)
				d.ends(before, false)
				second := d.begin(api.MigrationTarget{ToPath: "/var/third.raw"})
				if copies {
					d.world.Copier.Gate = make(chan struct{})
					_, _, err := d.manager().Copy(context.Background(), d.call(second.ID))
					must(t, err)
					pass(time.Second)
				}
				d.world.GuestWrites()
				d.restores(b, api.MigrationStarted)
				pass(time.Second)
				d.rejoined()
				d.until(second.ID, api.MigrationCancelled)
				d.wantEnded(d.get(before.ID))
			})
		})
	}
}

// An operator has chosen the copy to keep.
func TestTheEndThatAPersonGaveAMoveAfterARestoreStands(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		b := d.hasBackup(mig.ID)
		d.ends(mig, false)
		d.restores(b, api.MigrationCancelled)
		d.rejoined()
		row, err := d.world.Registry.Migration(t.Context(), mig.ID)
		must(t, err)
		if row.State != api.MigrationCancelled {
			t.Errorf("the registry has the migration as %s", row.State)
		}
	})
}

func TestUntilTheRegistryHasHeardOfAnEndNothingGoesByItsWord(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		b := d.hasBackup(mig.ID)
		d.ends(mig, false)
		must(t, d.world.Stop(testInstance))
		d.restores(b, api.MigrationStarted)
		err := d.manager().Monitor.MayStart(t.Context(), testInstance)
		if api.CodeOf(err) != api.CodeChainChanged {
			t.Fatalf("a start: %v, want chain_changed", err)
		}
		for _, word := range []string{"has as orphaned", mig.Dst.Path, "volferryctl migration complete", "the restore of the registry is accepted"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not say %q", err, word)
			}
		}
		if strings.Contains(err.Error(), "forget") {
			t.Errorf("%q says to forget", err)
		}
		d.rejoined()
		pass(time.Second)
		must(t, d.manager().Monitor.MayStart(t.Context(), testInstance))
	})
}

func TestAnEndThatTheRegistryRefusesIsReportedAgain(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		b := d.hasBackup(mig.ID)
		d.ends(mig, false)
		d.restores(b, api.MigrationOrphaned) // no host can end a move from that state
		d.rejoined()
		pass(time.Minute)
		row, err := d.world.Registry.Migration(t.Context(), mig.ID)
		must(t, err)
		if row.State != api.MigrationOrphaned {
			t.Fatalf("the registry has the migration as %s: it has refused nothing", row.State)
		}
		r := d.world.Registry
		r.With(func() {
			row.State = api.MigrationCopied
			r.Rows[mig.ID] = row
		})
		pass(2 * endsDelay)
		d.wantEnded(d.get(mig.ID))
	})
}
