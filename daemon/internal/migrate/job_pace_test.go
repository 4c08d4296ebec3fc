// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// suffers is the latency of a guest that tolerates only the slowest job.
func suffers(job *hv.Job) time.Duration {
	if job == nil || job.BandwidthBytesPerSecond > 0 && job.BandwidthBytesPerSecond <= 8<<20 {
		return time.Millisecond
	}
	return 20 * time.Millisecond
}

func (d *daemon) limitOf() int64 {
	d.t.Helper()
	job, err := d.world.Job(context.Background(), testInstance, "vda")
	must(d.t, err)
	if job == nil {
		d.t.Fatal("there is no job")
	}
	return job.BandwidthBytesPerSecond
}

// wantPacing checks that a migration has this kind of pacing now, and that the metrics count that
// kind.
func (d *daemon) wantPacing(id string, want move.PacingKind) {
	d.t.Helper()
	synctest.Wait()
	open, err := d.manager().Open(context.Background())
	must(d.t, err)
	for i := range open {
		if open[i].ID != id {
			continue
		}
		if got := open[i].PacingKind; got != want {
			d.t.Errorf("the kind of %q is %q, want %q", open[i].Pacing, got, want)
		}
		if want != (move.PacingKind{}) && !slices.Contains(move.PacingKinds(), want) {
			d.t.Errorf("%q is none of the known kinds", want)
		}
		return
	}
	d.t.Errorf("migration %s is not among the %d open ones", id, len(open))
}

func TestJobsOfQEMUGiveWayToTheirGuest(t *testing.T) {
	for name, begin := range map[string]func(d *daemon) string{
		"mirror": func(d *daemon) string {
			id := d.migrateTo(mirrorToNewPool)
			d.until(id, api.MigrationCopying)
			return id
		},
		"fold into the destination": func(d *daemon) string {
			id := d.migrate()
			d.until(id, api.MigrationCompleting)
			return id
		},
		"fold into the source": func(d *daemon) string {
			d.world.SetStep(2)
			mig := d.copied()
			d.world.SetStep(0)
			_, _, err := d.manager().Cancel(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID})
			must(d.t, err)
			d.until(mig.ID, api.MigrationCancelling)
			return mig.ID
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.world.SetLatency(suffers)
				d.world.SetStep(0)
				id := begin(d)
				d.world.Step(1) // the job has scanned the disk
				_, err := d.manager().Update(context.Background(), id, api.MigrationUpdate{Pace: api.PaceFull})
				must(t, err)
				for range 2 {
					pass(2 * time.Second)
					if limit := d.limitOf(); limit == 0 || limit > 16<<20 {
						t.Errorf("the job has a limit of %d", limit)
					}
					if got := d.get(id); !strings.Contains(got.Pacing, "gives way") {
						t.Errorf("pacing is %q", got.Pacing)
					}
					d.wantPacing(id, move.PacingKind{Doing: "gives_way", Requests: "writes"})
					d.Restart() // another daemon adopts the job, with its limit
				}
				_, err = d.manager().Update(context.Background(), id, api.MigrationUpdate{Pace: api.PaceOff})
				must(t, err)
				pass(time.Second)
				if limit := d.limitOf(); limit != 0 {
					t.Errorf("with pace off the job has a limit of %d", limit)
				}
				d.wantPacing(id, move.PacingKind{})
				d.world.SetStep(2)
				if name == "fold into the source" {
					d.until(id, api.MigrationCancelled)
					return
				}
				d.moved(d.until(id, api.MigrationCompleted))
			})
		})
	}
}

func TestAJobThatGetsNowhereIsNotHeldBack(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.SetLatency(suffers)
		d.world.SetStep(0)
		d.world.SetQuiet()
		id := d.migrateTo(mirrorToNewPool)
		d.until(id, api.MigrationCopying)
		d.world.Step(1)
		pass(5 * time.Second)
		if limit := d.limitOf(); limit != 0 {
			t.Errorf("the job has a limit of %d", limit)
		}
		if got := d.get(id); !strings.Contains(got.Pacing, "catch up") {
			t.Errorf("pacing is %q", got.Pacing)
		}
		d.wantPacing(id, move.PacingKind{Doing: "catches_up"})
		d.world.SetStep(2)
		d.until(id, api.MigrationCompleted)
	})
}

// The remaining bytes are unknown while a job scans the disk.
func TestAGuestIsNotSlowedDownBesideACommitThatGetsOn(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		for range 20 {
			d.world.GuestWrites()
		}
		d.world.SetQuiet()
		d.world.SetStep(0)
		_, _, err := d.manager().Cancel(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID})
		must(t, err)
		d.until(mig.ID, api.MigrationCancelling)
		pass(time.Second)
		for range 4 {
			d.world.Step(1)
			pass(5 * time.Second)
		}
		if limit := d.world.WriteLimit(testInstance, "vda"); limit != 0 {
			t.Errorf("the guest may write %d bytes per second", limit)
		}
		d.world.SetStep(2)
		d.until(mig.ID, api.MigrationCancelled)
	})
}
