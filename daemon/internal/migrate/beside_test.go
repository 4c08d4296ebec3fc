// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

const (
	logsVolume = "0b1f5d3a-7f0e-4c0f-9d0a-5c4f7c1f4a02"
	logsPath   = "/old/logs.raw"
)

// withLogs starts the guest with a second volume.
func (d *daemon) withLogs(state hv.State) {
	d.t.Helper()
	must(d.t, d.world.CreateImage(logsPath, hvtest.Raw, testSize))
	d.world.Redefine(d.t, func(dom *hv.Domain) {
		dom.Config = append(dom.Config, hv.Disk{Target: "vdb", Device: "disk", Chain: []hv.Image{rawImage(logsPath)}, Terminated: true})
	})
	if state.Active() {
		must(d.t, d.world.Start(testInstance))
	}
}

// planOfLogs plans a move of the second volume, which the registry knows only meanwhile.
func (d *daemon) planOfLogs() error { d.t.Helper(); return d.planOfLogsTo(toNewPool) }

func (d *daemon) planOfLogsTo(target api.MigrationTarget) error {
	d.t.Helper()
	r := d.world.Registry
	vol := r.CurrentVolume()
	logs := vol
	logs.ID, logs.Name, logs.MigrationID, logs.Location.Path = logsVolume, "logs", "", logsPath
	att := vol.Attachments[0]
	att.ID, att.VolumeID, att.Device, att.Location = logsVolume, logsVolume, "vdb", logs.Location
	logs.Attachments = []api.Attachment{att}
	set := func(v api.Volume) {
		r.Lock()
		defer r.Unlock()
		r.Vol = v
	}
	set(logs)
	defer set(vol)
	_, err := d.manager().Plan(d.t.Context(), logsVolume, target)
	return err
}

func TestASecondVolumeOfAConfinedGuestMovesAfterTheFirst(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.withLogs(hv.StateRunning)
		must(t, d.planOfLogs())
		mig := d.copied()
		must(t, d.planOfLogs()) // no rules confine the guest

		d.world.Confine(rulesFile)
		err := d.planOfLogs()
		if api.CodeOf(err) != api.CodeInstanceBusy || api.AsError(err).Details["migration_id"] != mig.ID {
			t.Errorf("a second migration of a confined guest: %v, want instance_busy by migration %s", err, mig.ID)
		}
		if !strings.Contains(err.Error(), "migration watch "+mig.ID) {
			t.Errorf("%q does not say when to try again", err)
		}
		d.Restart()
		if err := d.planOfLogs(); api.CodeOf(err) != api.CodeInstanceBusy {
			t.Errorf("after a restart of the daemon: %v, want instance_busy", err)
		}
		_, _, err = d.manager().Cancel(t.Context(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		must(t, d.planOfLogs())
	})
}

// Neither move has an overlay, so nothing is below one.
func TestTwoVolumesOfAConfinedGuestAreMirroredAtOnce(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.withLogs(hv.StateRunning)
		d.world.Confine(rulesFile)
		d.world.Copier.Gate = make(chan struct{})
		d.world.SetStep(0)
		id := d.migrateTo(mirrorToNewPool)
		d.until(id, api.MigrationCopying)
		must(t, d.planOfLogsTo(mirrorToNewPool))
		if err := d.planOfLogs(); api.CodeOf(err) != api.CodeInstanceBusy {
			t.Errorf("a move with an overlay beside a mirror: %v, want instance_busy", err)
		}
		d.world.SetStep(8)
		d.until(id, api.MigrationCompleted)
	})
}

func TestASecondVolumeOfAStoppedInstanceMovesBesideTheFirst(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.withLogs(hv.StateStopped)
		d.world.Confine(rulesFile)
		d.begin(toNewPool)
		must(t, d.planOfLogs())
	})
}

// A detach of the second volume is under way at the request for the start, and is given up while
// the start waits.
func TestNoOverlayIsMadeUnderAGuestThatMayStillLetGoOfAnotherDisk(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		looks, given := 0, 0
		d.world.MayOverlay = func() error {
			if looks++; looks <= given {
				return nil
			}
			return api.Errorf(api.CodeInstanceBusy, "it may release another disk")
		}
		refused := func(err error) {
			t.Helper()
			if api.CodeOf(err) != api.CodeInstanceBusy {
				t.Errorf("got %v, want instance_busy", err)
			}
			if calls := d.changes(0); len(calls) > 0 {
				t.Errorf("a refused start made the calls %v", calls)
			}
			d.stayed()
		}
		_, err := d.manager().Plan(t.Context(), testVolume, toNewPool)
		refused(err)
		for given = range 2 {
			looks = 0
			_, err := d.manager().Start(t.Context(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool, Composite: true})
			refused(err)
			if looks != given+1 {
				t.Errorf("refused at look %d, want %d", looks, given+1)
			}
		}
		d.moved(d.until(d.migrateTo(mirrorToNewPool), api.MigrationCompleted)) // it has no overlay
	})
}
