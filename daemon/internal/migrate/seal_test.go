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

// committedByUser is a person, or a backup program, who commits the guest's overlay and
// lets it go on on src (virsh blockcommit --active --pivot), where it writes; and who
// then, as he was told, has it on the overlay again.
func committedByUser(t *testing.T, d *daemon, m api.Migration) {
	t.Helper()
	ctx := context.Background()
	must(t, d.world.CommitActive(ctx, testInstance, "vda", 0))
	d.world.Step(testBlocks)
	must(t, d.world.Fake.Pivot(ctx, testInstance, "vda"))
	for range 20 {
		d.world.guestWrites()
	}
	must(t, d.world.Stop(testInstance))
	must(t, d.world.SetConfigChain(ctx, testInstance, "vda", []hv.Image{
		{Type: hv.SourceFile, Format: "qcow2", Path: overlayOf(m)}, rawImage(srcPath),
	}))
}

func TestAStaleOverlayIsNotFoldedOverASrcThatWasWrittenSince(t *testing.T) {
	for _, running := range []bool{false, true} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			m := d.copied()
			committedByUser(t, d, m)
			src, err := d.world.ReadImage(srcPath)
			must(t, err)
			d.world.setQuiet()
			if running {
				must(t, d.world.Start(testInstance))
			}
			for range 2 { // asking again makes it no better
				_, opID, err := d.manager().Cancel(context.Background(), d.call(m.ID))
				must(t, err)
				if e := d.ended(opID); e == nil || e.Code != api.CodeChainChanged {
					t.Errorf("cancel ended with %v, want chain_changed", e)
				}
			}
			_, opID, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: m.ID, DstAttachmentID: m.DstAttachmentID})
			must(t, err)
			if e := d.ended(opID); e == nil || e.Code != api.CodeChainChanged {
				t.Errorf("complete ended with %v, want chain_changed", e)
			}
			if got := d.get(m.ID).State; got != api.MigrationCopied {
				t.Errorf("the migration is %s, want copied: nothing was brought back", got)
			}
			now, err := d.world.ReadImage(srcPath)
			must(t, err)
			for b, v := range src {
				if now[b] != v {
					t.Fatalf("block %d of src was overwritten", b)
				}
			}
		})
	}
}

func TestASrcThatWasWrittenBeforeTheCopyIsNotCopied(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		m := d.begin(toNewPool)
		must(t, d.world.WriteBlock(srcPath, 5, 4711))
		_, opID, err := d.manager().Copy(context.Background(), d.call(m.ID))
		must(t, err)
		if e := d.ended(opID); e == nil || e.Code != api.CodeChainChanged {
			t.Errorf("the copy ended with %v, want chain_changed", e)
		}
	})
}

// A program may write what is there already, or only touch the file.
func TestASrcThatWasTouchedAndIsWhatWasCopiedIsSwitched(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		m := d.copied()
		src, err := d.world.ReadImage(srcPath)
		must(t, err)
		must(t, d.world.Touch(srcPath))
		_, _, err = d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: m.ID, DstAttachmentID: m.DstAttachmentID})
		must(t, err)
		d.moved(d.until(m.ID, api.MigrationCompleted))
		if now, err := d.world.ReadImage(srcPath); err != nil || len(now) != len(src) {
			t.Errorf("src has %d blocks (%v), want %d", len(now), err, len(src))
		}
	})
}

// Part of the overlay is in src by our own doing: that is no reason to stop.
func TestACancelThatWasCutOffInItsFoldGoesOn(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		m := d.copied()
		d.world.SetStep(1)
		_, _, err := d.manager().Cancel(context.Background(), d.call(m.ID))
		must(t, err)
		pass(time.Second)                      // a commit that is not at its end
		must(t, d.world.Destroy(testInstance)) // planned anew, as one that is off
		d.world.SetStep(2)
		d.until(m.ID, api.MigrationCancelled)
		d.stayed()
	})
}
