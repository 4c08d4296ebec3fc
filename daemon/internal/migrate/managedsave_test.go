// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// A guest that is saved on src is started on src again, whatever the definition names: then src is
// not frozen.
func TestAGuestThatIsSavedDuringStartNeverWritesToAFrozenSrc(t *testing.T) {
	atEveryCall(t, hv.StateRunning, func(t *testing.T, d *daemon, n int) (reached bool) {
		d.world.Inject(hvtest.Fault{Nth: n, Do: func() { reached = d.world.Save(testInstance) == nil }})
		mig, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool})
		calm(d)
		if err == nil {
			mig, err = d.manager().Get(context.Background(), mig.ID)
			must(t, err)
		}
		before, err := d.world.ReadImage(srcPath)
		must(t, err)
		_ = d.world.Start(testInstance)
		for range 20 {
			d.world.GuestWrites()
		}
		after, err := d.world.ReadImage(srcPath)
		must(t, err)
		if mig.State == api.MigrationStarted && fmt.Sprint(before) != fmt.Sprint(after) {
			t.Error("src was written after start had returned")
		}
		if mig.State != api.MigrationStarted {
			d.stayed()
		}
		return reached
	})
}

func TestASavedGuestIsNotFoldedBehindItsBack(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.begin(toNewPool)
		_, _, err := d.manager().Copy(ctx, d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopied)
		must(t, d.world.Save(testInstance))
		_, id, err := d.manager().Complete(ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		must(t, err)
		_, err = d.runner().Wait(ctx, id)
		must(t, err)
		if o, err := d.manager().Request(ctx, id); err != nil || o.Error == nil || o.Error.Code != api.CodeStateForbidden {
			t.Errorf("complete with a managed save image: %+v (%v), want state_forbidden", o.Error, err)
		}
		must(t, d.world.Start(testInstance))
		_, _, err = d.manager().Complete(ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		must(t, err)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

// Its switch waits until the guest is restored, and is not given up.
func TestAMoveWhoseGuestIsSavedInTheCopyGoesOnWhenItIsRestored(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		must(t, d.world.Save(testInstance))
		close(d.world.Copier.Gate)
		d.until(id, api.MigrationCopied)
		pass(time.Minute)
		if mig := d.get(id); mig.State != api.MigrationCopied || mig.Error != nil || mig.Stopped() {
			t.Errorf("the migration is %s (%v), stopped since %v, want copied, waiting for the guest", mig.State, mig.Error, mig.StoppedAt)
		}
		pass(heldUpAfter)
		d.Restart()
		pass(time.Hour)
		mig := d.get(id)
		if mig.State != api.MigrationCopied || mig.StoppedAt == nil || mig.Error == nil || !strings.Contains(mig.Error.Message, "managed save image") {
			t.Errorf("after ten minutes the migration is %s (%v), stopped since %v, want that the saved guest holds it up", mig.State, mig.Error, mig.StoppedAt)
		}
		if c := api.CheckMoves([]api.Migration{mig}); c.Status != "fail" || !strings.Contains(c.Advice, mig.CompleteCommand()) || !strings.Contains(c.Advice, "migration cancel") {
			t.Errorf("the check of the moves is %+v", c)
		}
		if got := d.world.Audits(); len(got) != 1 {
			t.Errorf("the audit trail was told %q, want it told once", got)
		}
		must(t, d.world.Start(testInstance))
		done := d.until(id, api.MigrationCompleted)
		if done.StoppedAt != nil || done.Error != nil {
			t.Errorf("a move that went on has stopped since %v (%v)", done.StoppedAt, done.Error)
		}
		d.moved(done)
	})
}

func TestAnUndefinedGuestThatRunsIsNotSaidToBeOnAnotherChain(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		must(t, d.world.Undefine(testInstance))
		_, opID, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		must(t, err)
		if refused := d.ended(opID); refused == nil || strings.Contains(refused.Message, string(move.Foreign)) || !strings.Contains(refused.Message, "virsh define") {
			t.Errorf("complete ended with %v, want that it has to be defined again", refused)
		}
	})
}
