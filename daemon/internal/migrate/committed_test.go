// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op/optest"
)

// committedByUser is a person who calls `virsh blockcommit --active --pivot`.
func (w *world) committedByUser(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	must(t, w.Fake.CommitActive(ctx, testInstance, "vda", 0))
	for {
		err := w.Fake.Pivot(ctx, testInstance, "vda")
		if !errors.Is(err, hv.ErrNotReady) {
			must(t, err)
			return
		}
		_, err = w.Fake.Domain(ctx, testInstance) // the job goes on
		must(t, err)
	}
}

// stayedBesides is stayed with an overlay that was kept, which is removed.
func (d *daemon) stayedBesides(overlay, dst string) {
	d.t.Helper()
	if !d.world.Exists(overlay) {
		d.t.Error("the overlay was not kept")
	}
	must(d.t, d.world.images.Remove(context.Background(), overlay))
	if d.world.Exists(dst) {
		d.t.Error("dst is left")
	}
	d.stayed()
}

func TestAnOverlayThatSomebodyHasCommittedIsCancelledOntoSrc(t *testing.T) {
	for name, stage := range map[string]func(*daemon, api.Migration){
		"before the copy": func(*daemon, api.Migration) {},
		"while another tool copies": func(d *daemon, mig api.Migration) {
			d.world.copier.gate = make(chan struct{})
			_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
			must(d.t, err)
			d.until(mig.ID, api.MigrationCopying)
		},
		"after the copy": func(d *daemon, mig api.Migration) {
			_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
			must(d.t, err)
			d.until(mig.ID, api.MigrationCopied)
		},
		"of a guest that was started on it": func(d *daemon, _ api.Migration) {
			must(d.t, d.world.Stop(testInstance))
			must(d.t, d.world.Start(testInstance))
			d.world.guestWrites()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				ctx := context.Background()
				d.watched()
				mig := d.begin(toNewPool)
				for range 10 {
					d.world.guestWrites()
				}
				stage(d, mig)
				d.world.committedByUser(t)
				for range 10 {
					d.world.guestWrites()
				}
				if _, id, err := d.manager().Complete(ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID}); err == nil {
					if refused := d.ended(id); refused == nil {
						t.Error("complete went to a dst that lacks what was written since")
					}
				}
				_, id, err := d.manager().Cancel(ctx, d.call(mig.ID))
				must(t, err)
				if refused := d.ended(id); refused != nil {
					t.Fatal(refused)
				}
				d.until(mig.ID, api.MigrationCancelled)
				if got := d.get(mig.ID); got.Error != nil || !strings.Contains(got.Remark, overlayOf(mig)) {
					t.Errorf("the answer does not name the overlay that is kept: %q (%v)", got.Remark, got.Error)
				}
				d.world.guestWrites()
				pass(time.Minute) // the watch looks again
				d.stayedBesides(overlayOf(mig), mig.Dst.Path)
			})
		})
	}
}

// Its disk is at the same place, and what it wrote to the overlay is not there.
func TestAGuestThatWasStartedOnSrcIsNotTakenForACommittedOne(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.begin(toNewPool)
		for range 10 {
			d.world.guestWrites()
		}
		must(t, d.world.Stop(testInstance))
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", []hv.Image{rawImage(srcPath)}))
		d.world.setQuiet() // it lacks what it wrote
		must(t, d.world.Start(testInstance))
		_, id, err := d.manager().Cancel(ctx, d.call(mig.ID))
		must(t, err)
		refused := d.ended(id)
		if refused == nil || refused.Code != api.CodeChainChanged || !strings.Contains(refused.Message, overlayOf(mig)) {
			t.Errorf("cancel: %v, want chain_changed with the overlay", refused)
		}
		if got := d.get(mig.ID).State; got != api.MigrationStarted {
			t.Errorf("the migration is %s, want started", got)
		}
		if !d.world.Exists(overlayOf(mig)) || !d.world.Exists(mig.Dst.Path) {
			t.Error("something was deleted")
		}
	})
}

func TestCancelOfACommittedOverlayMatrix(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StatePaused} {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, hv.StateRunning, MethodOverlay)
				must(t, p.Stop(testInstance)) // no journal tells of the process that start has switched
				must(t, p.Start(testInstance))
				p.guestWrites()
				p.committedByUser(t)
				p.guestWrites()
				if state == hv.StatePaused {
					must(t, p.SuspendByUser(testInstance))
				}
				p.kind = kindCancelCommitted
				onSrc := func(p *phase) error {
					if !p.Exists(overlayPath) {
						return errors.New("the overlay was not kept")
					}
					return p.images.Remove(context.Background(), overlayPath)
				}
				p.done = func(p *phase) error {
					err := errors.Join(onSrc(p), p.settled(srcPath), p.row(api.MigrationCancelled))
					if p.Exists(dstPath) {
						err = errors.Join(err, fmt.Errorf("dst is left"))
					}
					return err
				}
				p.undone = func(p *phase) error { return errors.Join(onSrc(p), p.settled(srcPath)) }
				return p
			}})
		})
	}
}
