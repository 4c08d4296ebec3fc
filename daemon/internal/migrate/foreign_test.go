// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

func (d *daemon) ended(opID string) *api.Error {
	d.t.Helper()
	_, err := d.runner().Wait(context.Background(), opID)
	must(d.t, err)
	o, err := d.manager().Request(context.Background(), opID)
	must(d.t, err)
	return o.Error
}

// The next boot must find the writes in the snapshot.
func TestAForeignSnapshotKeepsItsPlaceInThePersistentXML(t *testing.T) {
	for _, step := range []string{"verify_frozen", "settle"} {
		t.Run("before "+step, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.journal.AfterAppend(func(r op.Record) {
					if r.Step == step && r.Kind == op.EventStarted {
						d.world.SnapshotByUser(t)
					}
				})
				d.until(d.migrate(), api.MigrationNeedsOperator)
				for range 10 {
					d.world.GuestWrites()
				}
				must(t, d.world.Stop(testInstance))
				r := &hosttest.Recorder{}
				d.world.AssertNoWriteLost(r)
				for _, err := range r.Problems {
					t.Error(err)
				}
			})
		})
	}
}

func TestAForeignSnapshotIsARefusalAndNoCaseForTheOperator(t *testing.T) {
	calls := map[string]func(*Manager, context.Context, Call) (api.Migration, string, error){
		"complete": (*Manager).Complete, "cancel": (*Manager).Cancel,
	}
	for name, do := range calls {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				ctx := context.Background()
				mig := d.begin(toNewPool)
				_, _, err := d.manager().Copy(ctx, d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCopied)
				d.world.SnapshotByUser(t)
				_, id, err := do(d.manager(), ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
				must(t, err)
				if refused := d.ended(id); refused == nil || refused.Code != api.CodeChainChanged {
					t.Errorf("%s with a foreign snapshot: %v, want chain_changed", name, refused)
				}
				if got, err := d.manager().Get(ctx, mig.ID); err != nil || got.State == api.MigrationNeedsOperator {
					t.Errorf("the migration is %s (%v)", got.State, err)
				}
			})
		})
	}
}

func TestAForeignBlockJobIsARefusalAndNoCaseForTheOperator(t *testing.T) {
	calls := map[string]func(*Manager, context.Context, Call) (api.Migration, string, error){
		"complete": (*Manager).Complete, "cancel": (*Manager).Cancel,
	}
	for name, do := range calls {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				ctx := context.Background()
				mig := d.begin(toNewPool)
				_, _, err := d.manager().Copy(ctx, d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCopied)
				other := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/old/other.raw"}
				must(t, d.world.CreateImage(other.Path, hvtest.Raw, testSize))
				must(t, d.world.BlockCopy(ctx, testInstance, "vda", other, hv.BlockCopyOptions{Synchronous: true}))
				c := Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID}
				_, id, err := do(d.manager(), ctx, c)
				must(t, err)
				refused := d.ended(id)
				if refused == nil || refused.Code != api.CodeChainChanged {
					t.Fatalf("%s with a foreign block job: %v, want chain_changed", name, refused)
				}
				if got, err := d.manager().Get(ctx, mig.ID); err != nil || got.State == api.MigrationNeedsOperator {
					t.Errorf("the migration is %s (%v)", got.State, err)
				}
				d.types(hosttest.CommandsIn(refused.Message)...)
				c.OpID = uuid.NewString()
				_, _, err = do(d.manager(), ctx, c)
				must(t, err)
				d.until(mig.ID, api.MigrationCompleted, api.MigrationCancelled)
			})
		})
	}
}

// Readers of the answer rely on the place of the volume.
func TestACancelOfAStartThatWaitsForTheOperatorDoesNotSayThatItIsCompleted(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		d.journal.AfterAppend(func(r op.Record) {
			if r.Step == "verify_frozen" && r.Kind == op.EventStarted {
				d.journal.AfterAppend(nil)
				d.world.SnapshotByUser(t)
			}
		})
		id := d.migrate()
		d.until(id, api.MigrationNeedsOperator)
		_, _, err := d.manager().Cancel(ctx, d.call(id))
		if api.CodeOf(err) != api.CodeNeedsOperator {
			t.Errorf("cancel: %v, want needs_operator", err)
		}
		d.until(id, api.MigrationNeedsOperator)
	})
}
