// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// A daemon is told to stop as soon as a record of the switch is stored, whichever
// it is. It leaves the guest running, and the next one ends the migration.
func TestADaemonThatStopsLeavesNoGuestPaused(t *testing.T) {
	for _, at := range []string{"mirror", "pause", "drain", "name_dst", "pivot", "resume", "settle"} {
		t.Run(at, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				m := d.begin(toNewPool)
				_, _, err := d.manager().Copy(context.Background(), d.call(m.ID))
				must(t, err)
				d.until(m.ID, api.MigrationCopied)
				stopped := make(chan struct{})
				d.journal.AfterAppend(func(r op.Record) {
					if r.Step != at || r.Kind != op.EventStarted {
						return
					}
					d.journal.AfterAppend(nil)
					go func() {
						defer close(stopped)
						d.manager().ComeOut(context.Background())
						d.stop()
					}()
					pass(time.Millisecond) // so that the stop is under way
				})
				_, _, err = d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: m.ID, DstAttachmentID: m.DstAttachmentID})
				must(t, err)
				<-stopped
				dom, err := d.world.Fake.Domain(context.Background(), testInstance)
				must(t, err)
				if dom.State != hv.StateRunning {
					t.Errorf("a daemon that was stopped at %s left the guest %s", at, dom.State)
				}
				d.boot()
				d.moved(d.until(m.ID, api.MigrationCompleted))
			})
		})
	}
}
