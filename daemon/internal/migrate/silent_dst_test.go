// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// copiedToExport copies the volume of the running guest to an export by hand.
func (d *daemon) copiedToExport() api.Migration {
	d.t.Helper()
	must(d.t, d.world.CreateImage(migratetest.OtherExport.Path, hvtest.Raw, testSize))
	d.world.To = api.MigrationTarget{ToPath: migratetest.OtherExport.Path}
	return d.copied()
}

// silentBound is how long the guest may wait, in addition to the time that the server has for an
// answer.
const silentBound = 150 * time.Second

// The server of dst stops answering at a moment of the complete. The fake rejects a suspend of the
// guest then, and the beginning of a job: QEMU would hang. The guest continues on its overlay, and
// the complete is repeated when the server is back.
func TestAGuestDoesNotWaitForADstWhoseServerDoesNotAnswer(t *testing.T) {
	dst := migratetest.OtherExport.Path
	for name, silence := range map[string]func(*daemon){
		"before the job": func(d *daemon) { d.when("mirror", op.EventStarted, func() { d.world.SetSilent(dst, true) }) },
		"in the job": func(d *daemon) {
			d.world.Inject(hvtest.Fault{Call: "BlockCopy", After: true, Do: func() { d.world.SetSilent(dst, true) }})
		},
		"before the pause": func(d *daemon) { d.when("pause", op.EventStarted, func() { d.world.SetSilent(dst, true) }) },
	} {
		for _, cancel := range []bool{false, true} {
			t.Run(name+", "+map[bool]string{false: "completed later", true: "cancelled"}[cancel], func(t *testing.T) {
				inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
					d.world.SetAbout(hv.About{QEMU: hv.Version{Major: 11}})
					must(t, d.world.Start(testInstance))
					mig := d.copiedToExport()
					for range 10 {
						d.world.GuestWrites()
					}
					silence(d)
					began := time.Now()
					d.completes(mig)
					for {
						synctest.Wait()
						now, err := d.manager().Get(context.Background(), mig.ID)
						must(t, err)
						if now.State == api.MigrationCopied && now.Error != nil && now.Error.Code == api.CodeIOError {
							break
						}
						if took := time.Since(began); took > silentBound {
							t.Fatalf("the migration is %s with %v after %s, want it copied with io_error within %s", now.State, now.Error, took, silentBound)
						}
						pass(100 * time.Millisecond)
					}
					dom, err := d.world.Fake.Domain(context.Background(), testInstance)
					must(t, err)
					if disk := dom.LiveDisk("vda"); dom.State != hv.StateRunning || disk.Mirror != nil || disk.Top().Path != overlayOf(mig) {
						t.Errorf("the guest is %s on %s with job %+v", dom.State, disk.Top().Path, disk.Mirror)
					}
					d.world.GuestWrites()
					if cancel {
						_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
						must(t, err)
						d.until(mig.ID, api.MigrationCancelled)
						d.stayed()
						return
					}
					d.world.SetSilent(dst, false)
					d.completes(mig)
					d.moved(d.until(mig.ID, api.MigrationCompleted))
				})
			})
		}
	}
}

// QEMU 7.2 dies when a job ends during a write.
func TestAGuestWaitsForASilentServerWhereItsQEMUWouldDieOtherwise(t *testing.T) {
	dst := migratetest.OtherExport.Path
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copiedToExport()
		d.world.GuestWrites()
		d.world.Inject(hvtest.Fault{Call: "BlockCopy", After: true, Do: func() { d.world.SetSilent(dst, true) }})
		d.completes(mig)
		pass(4 * silentBound)
		now, err := d.manager().Get(context.Background(), mig.ID)
		must(t, err)
		if !strings.Contains(now.Pacing, "does not answer") || slices.Contains(d.world.Calls(), "EndConnections") {
			t.Errorf("the migration says %q, and the calls were %v", now.Pacing, d.world.Calls())
		}
		d.wantPacing(mig.ID, move.PacingKind{Doing: "waits_for_dst"})
		d.world.SetSilent(dst, false)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

// The complete had no time to ask, and its job exists.
func TestACancelEndsAJobIntoADstWhoseServerDoesNotAnswerWithoutAPause(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copiedToExport()
		d.world.Inject(hvtest.Fault{Call: "BlockCopy", After: true, Do: func() { d.world.SetSilent(migratetest.OtherExport.Path, true) }})
		d.completes(mig)
		for dom := new(hv.Domain); dom.LiveDisk("vda") == nil || dom.LiveDisk("vda").Mirror == nil; pass(10 * time.Millisecond) {
			synctest.Wait()
			now, err := d.world.Fake.Domain(context.Background(), testInstance)
			must(t, err)
			dom = now
		}
		d.until(d.cancels(mig.ID), api.MigrationCancelled)
		d.stayed()
		if !slices.Contains(d.world.Calls(), "EndConnections") {
			t.Error("the connections to dst were not ended")
		}
	})
}
