// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The libvirt hook may be missing. A guest that is started and stopped between
// any two records of a complete or a cancel still loses nothing.
func TestWithoutTheHookAGuestMayRunBetweenAnyTwoRecords(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		for n := 1; ; n++ {
			reached := false
			t.Run(fmt.Sprintf("cancel %v record %d", cancel, n), func(t *testing.T) {
				inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
					d.world.OnStart = nil
					m := d.begin(toNewPool)
					_, _, err := d.manager().Copy(context.Background(), d.call(m.ID))
					must(t, err)
					d.until(m.ID, api.MigrationCopied)
					must(t, d.world.Stop(testInstance))
					left := n
					d.journal.AfterAppend(func(op.Record) {
						if left--; left == 0 {
							reached = true
							d.world.runsForAWhile()
						}
					})
					c := Call{OpID: uuid.NewString(), Subject: m.ID, DstAttachmentID: m.DstAttachmentID}
					if cancel {
						_, _, err = d.manager().Cancel(context.Background(), c)
						must(t, err)
						d.until(m.ID, api.MigrationCancelled)
						d.stayed()
						return
					}
					_, _, err = d.manager().Complete(context.Background(), c)
					must(t, err)
					d.moved(d.until(m.ID, api.MigrationCompleted))
				})
			})
			if !reached || t.Failed() {
				break
			}
		}
	}
}

// runsForAWhile starts the instance, lets it write and stops it.
func (w *world) runsForAWhile() {
	if w.Start(testInstance) != nil {
		return // QEMU finds its image locked
	}
	for range 5 {
		w.guestWrites()
	}
	_ = w.Stop(testInstance)
}

// Somebody has defined the instance anew from its old XML: its disk may have
// newer data than the overlay, or not. Nobody can tell.
func TestACancelDoesNotFoldAnOverlayThatTheInstanceWasTakenOff(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		m := d.begin(toNewPool)
		d.world.guestWrites()
		must(t, d.world.Stop(testInstance))
		src := []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: srcPath}}
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", src))
		before, err := d.world.ReadImage(srcPath)
		must(t, err)
		_, id, err := d.manager().Cancel(ctx, d.call(m.ID))
		must(t, err)
		if e := d.ended(id); e == nil || e.Code != api.CodeChainChanged {
			t.Errorf("cancel with the instance on src: %v, want chain_changed", e)
		}
		after, err := d.world.ReadImage(srcPath)
		must(t, err)
		if len(before) != len(after) || !d.world.Exists(overlayOf(m)) {
			t.Error("the overlay was folded or removed")
		}
	})
}

func overlayOf(m api.Migration) string { return "/overlays/" + m.ID + ".qcow2" }
