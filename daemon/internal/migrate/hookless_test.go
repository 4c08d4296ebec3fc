// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
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
