// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// committedByUser simulates a person, or a backup program, who commits the guest's overlay and lets
// it continue on src (virsh blockcommit --active --pivot), where it writes; and who then, as the
// message advises, puts it on the overlay again.
func committedByUser(t *testing.T, d *daemon, mig api.Migration) {
	t.Helper()
	ctx := context.Background()
	must(t, d.world.CommitActive(ctx, testInstance, "vda", 0))
	d.world.Step(testBlocks)
	must(t, d.world.Fake.Pivot(ctx, testInstance, "vda"))
	for range 20 {
		d.world.GuestWrites()
	}
	must(t, d.world.Stop(testInstance))
	must(t, d.world.SetConfigChain(ctx, testInstance, "vda", []hv.Image{
		{Type: hv.SourceFile, Format: "qcow2", Path: overlayOf(mig)}, rawImage(srcPath),
	}))
}

// staleOverlay makes a person commit the overlay of a move, after which src is written. unwritten
// checks that src was not written since.
func staleOverlay(t *testing.T, d *daemon, running bool) (mig api.Migration, unwritten func()) {
	t.Helper()
	mig = d.copied()
	committedByUser(t, d, mig)
	src, err := d.world.ReadImage(srcPath)
	must(t, err)
	d.world.SetQuiet()
	if running {
		must(t, d.world.Start(testInstance))
	}
	return mig, func() {
		t.Helper()
		now, err := d.world.ReadImage(srcPath)
		must(t, err)
		if !maps.Equal(src, now) {
			t.Error("src was overwritten")
		}
	}
}

func TestAStaleOverlayIsNotFoldedOverASrcThatWasWrittenSince(t *testing.T) {
	for _, running := range []bool{false, true} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			mig, unwritten := staleOverlay(t, d, running)
			for range 2 { // a repeated request gets the same answer
				_, opID, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(t, err)
				if refused := d.ended(opID); refused == nil || refused.Code != api.CodeChainChanged {
					t.Errorf("cancel ended with %v, want chain_changed", refused)
				}
			}
			_, opID, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
			must(t, err)
			if refused := d.ended(opID); refused == nil || refused.Code != api.CodeChainChanged {
				t.Errorf("complete ended with %v, want chain_changed", refused)
			}
			if got := d.get(mig.ID).State; got != api.MigrationCopied {
				t.Errorf("the migration is %s, want copied: nothing was brought back", got)
			}
			unwritten()
		})
	}
}

// The daemon dies during the refusal, or loses its connection to libvirt, and repeats the refusal.
func TestAStaleOverlayIsNotFoldedOverASrcThatWasWrittenSinceWhateverHappensAtEveryCall(t *testing.T) {
	for name, happen := range map[string]func(d *daemon) hvtest.Fault{
		"the daemon dies":   func(d *daemon) hvtest.Fault { return hvtest.Fault{Do: func() { go d.Restart() }} },
		"libvirt goes away": func(d *daemon) hvtest.Fault { return hvtest.Fault{Do: func() { awayFor(d, 3*time.Second) }} },
	} {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, running %t", name, running), func(t *testing.T) {
				everyCall(t, hv.StateRunning, func(t *testing.T, d *daemon, fault hvtest.Fault) {
					mig, unwritten := staleOverlay(t, d, running)
					d.world.Inject(fault)
					began := time.Now()
					for mig.Error == nil || mig.Error.Code != api.CodeChainChanged {
						_, _, _ = d.manager().Cancel(context.Background(), d.call(mig.ID))
						pass(10 * time.Second)
						synctest.Wait()
						if mig = d.get(mig.ID); mig.State.Final() || time.Since(began) > moveTimeout {
							t.Fatalf("the migration is %s (%v), want the cancel refused with chain_changed", mig.State, mig.Error)
						}
					}
					calm(d)
					unwritten()
				}, happen)
			})
		}
	}
}

func TestASrcThatWasWrittenBeforeTheCopyIsNotCopied(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		must(t, d.world.WriteBlock(srcPath, 5, 4711))
		_, opID, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		if refused := d.ended(opID); refused == nil || refused.Code != api.CodeChainChanged {
			t.Errorf("the copy ended with %v, want chain_changed", refused)
		}
	})
}

// A program may write the same data again, or only touch the file.
func TestASrcThatWasTouchedAndIsWhatWasCopiedIsSwitched(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		mig := d.copied()
		src, err := d.world.ReadImage(srcPath)
		must(t, err)
		must(t, d.world.Touch(srcPath))
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
		if now, err := d.world.ReadImage(srcPath); err != nil || len(now) != len(src) {
			t.Errorf("src has %d blocks (%v), want %d", len(now), err, len(src))
		}
	})
}

// The volume lacks the data that a guest, perhaps without a hook, has written there.
func TestASourceThatWasWrittenIsKeptThoughItIsToBeDeleted(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		d.when("release_source", op.EventStarted, func() { must(t, d.world.WriteBlock(srcPath, 5, 4711)) })
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPool: "new", DeleteSource: true}), api.MigrationCompleted)
		if !d.world.Exists(srcPath) || !strings.Contains(mig.Remark, srcPath) {
			t.Errorf("the source is there: %t; the remark is %q", d.world.Exists(srcPath), mig.Remark)
		}
		d.moved(mig)
	})
}

// A daemon that died after the deletion deletes again, with nothing there.
func TestASourceThatWasDeletedByATryBeforeIsDeleted(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		d.when("release_source", op.EventStarted, func() { must(t, d.world.Remove(srcPath)) })
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPool: "new", DeleteSource: true}), api.MigrationCompleted)
		if at := d.world.Registry.CurrentVolume().Location.Path; mig.Remark != "" || at != mig.Dst.Path {
			t.Errorf("the registry has the volume at %s, want %s; the remark is %q", at, mig.Dst.Path, mig.Remark)
		}
	})
}

// This cancel itself has written part of the overlay to src: that is no reason to stop.
func TestACancelThatWasCutOffInItsFoldGoesOn(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.SetStep(1)
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		pass(time.Second)                      // a commit that has not ended
		must(t, d.world.Destroy(testInstance)) // planned again, as a cancel of a guest that is off
		d.world.SetStep(2)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}
