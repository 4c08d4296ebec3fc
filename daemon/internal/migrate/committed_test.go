// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// stayedBesides is stayed after the removal of an overlay that was kept.
func (d *daemon) stayedBesides(overlay, dst string) {
	d.t.Helper()
	if !d.world.Exists(overlay) {
		d.t.Error("the overlay was not kept")
	}
	must(d.t, d.world.Images.Remove(context.Background(), overlay))
	if d.world.Exists(dst) {
		d.t.Error("dst is left")
	}
	d.stayed()
}

// saysCommitted checks that src is named as the image with every write, and why.
func (d *daemon) saysCommitted(mig api.Migration) {
	d.t.Helper()
	w := d.which()
	if w.Agree || len(w.Authoritative) != 1 || w.Authoritative[0].Path != srcPath ||
		!strings.Contains(w.Explanation, "committed") || !strings.Contains(w.Explanation, "migration cancel "+mig.ID) || !strings.Contains(w.Explanation, overlayOf(mig)) {
		d.t.Errorf("while the migration is %s, %v is authoritative: %s", d.get(mig.ID).State, w.Authoritative, w.Explanation)
	}
}

func TestAnOverlayThatSomebodyHasCommittedIsCancelledOntoSrc(t *testing.T) {
	for name, stage := range map[string]func(*daemon, api.Migration){
		"before the copy": func(*daemon, api.Migration) {},
		"while another tool copies": func(d *daemon, mig api.Migration) {
			d.world.Copier.Gate = make(chan struct{})
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
			d.world.GuestWrites()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				ctx := context.Background()
				d.watched()
				mig := d.begin(toNewPool)
				for range 10 {
					d.world.GuestWrites()
				}
				stage(d, mig)
				d.world.CommitByUser(t)
				d.saysCommitted(mig)
				for range 10 {
					d.world.GuestWrites()
				}
				d.saysCommitted(mig)
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
				d.world.GuestWrites()
				pass(time.Minute) // the watch looks again
				d.stayedBesides(overlayOf(mig), mig.Dst.Path)
			})
		})
	}
}

// Its disk is at the same place, and lacks its writes to the overlay.
func TestAGuestThatWasStartedOnSrcIsNotTakenForACommittedOne(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.begin(toNewPool)
		for range 10 {
			d.world.GuestWrites()
		}
		must(t, d.world.Stop(testInstance))
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", []hv.Image{rawImage(srcPath)}))
		d.world.SetQuiet() // src lacks the guest's writes
		must(t, d.world.Start(testInstance))
		d.world.Copier.Gate = make(chan struct{})
		for _, during := range []string{"started", "being copied"} {
			if w := d.which(); w.Authoritative != nil {
				t.Errorf("while it is %s, %v is authoritative: %s", during, w.Authoritative, w.Explanation)
			}
			if during == "started" {
				_, _, err := d.manager().Copy(ctx, d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCopying)
			}
		}
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

// A snapshot was taken over the overlay and merged into it again, as virsh does without --delete.
func TestTheImageOfASnapshotThatAMoveLeavesIsNamed(t *testing.T) {
	for name, cancel := range map[string]bool{"completed": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.copied()
				snapshot := strings.TrimSuffix(overlayOf(mig), "qcow2") + "s1"
				must(t, d.world.CreateImage(snapshot, hvtest.Qcow2, testSize))
				end, state := d.manager().Complete, api.MigrationCompleted
				if cancel {
					end, state = d.manager().Cancel, api.MigrationCancelled
				}
				_, _, err := end(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
				must(t, err)
				if mig = d.until(mig.ID, state); !strings.Contains(mig.Remark, snapshot) || !d.world.Exists(snapshot) {
					t.Errorf("the remark is %q", mig.Remark)
				}
			})
		})
	}
}
