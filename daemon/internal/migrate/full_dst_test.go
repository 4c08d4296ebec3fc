// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// QEMU ends the job of a fold into a full filesystem. Another try would fail too.
func TestAFoldThatFillsTheFilesystemOfDstSaysSoAndIsNotMadeAgainByItself(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.copied()
		for range 20 {
			d.world.GuestWrites()
		}
		d.world.SetStep(0)
		complete := func() string {
			t.Helper()
			_, id, err := d.manager().Complete(ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
			must(t, err)
			return id
		}
		id := complete()
		pass(time.Second)
		d.world.Images.Free.Store(1)
		must(t, d.world.BreakJob(testInstance, "vda"))
		if refused := d.ended(id); refused == nil || refused.Code != api.CodeNoSpace {
			t.Errorf("the complete ended with %v, want no_space", refused)
		}
		pass(time.Minute)
		if got := d.get(mig.ID).State; got != api.MigrationCopied {
			t.Errorf("the migration is %s, want copied: nobody has asked again", got)
		}
		d.world.Images.Free.Store(0)
		d.world.SetStep(2)
		complete()
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}
