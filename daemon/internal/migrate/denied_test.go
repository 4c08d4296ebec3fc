// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

const rulesFile = "/etc/apparmor.d/libvirt/libvirt-x.files"

// saysHow checks that a refusal says what to do about a rule against writing to the image.
func saysHow(t *testing.T, refused *api.Error, path string) {
	t.Helper()
	if refused == nil || refused.Code != api.CodePermissionDenied {
		t.Fatalf("%v, want permission_denied", refused)
	}
	for _, words := range []string{`deny "` + path + `" w,`, rulesFile, "stop the instance"} {
		if !strings.Contains(refused.Message, words) {
			t.Errorf("%q does not say %q", refused.Message, words)
		}
	}
}

// isRefused requests a cancel, which must be refused without an op.
func (d *daemon) isRefused(mig api.Migration) {
	d.t.Helper()
	_, opID, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
	saysHow(d.t, api.AsError(err), srcPath)
	if opID != "" {
		d.t.Errorf("op %s was made", opID)
	}
	copyIt, completeIt, removeIt := strings.Index(err.Error(), "migration copy "+mig.ID), strings.Index(err.Error(), "migration complete "+mig.ID), strings.Index(err.Error(), "sed ")
	if copyIt < 0 || completeIt < copyIt || removeIt < completeIt {
		d.t.Errorf("%q does not first say how to complete the migration", err)
	}
	if calls := d.world.Calls(); slices.Contains(calls, "CommitActive") {
		d.t.Errorf("the commit was begun: %v", calls)
	}
	d.onOverlay(mig)
}

func TestACancelThatAppArmorWouldDenyIsRefusedAndGoesOnWithoutTheRule(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.DenyWrite(srcPath, rulesFile)
		d.isRefused(mig)

		d.world.DenyWrite(srcPath, "")
		d.ends(mig, true)
	})
}

func TestACancelThatAppArmorWouldDenyLeavesTheMoveToItsEnd(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(d.world.To)
		d.world.DenyWrite(srcPath, rulesFile)
		d.isRefused(mig)
		d.Restart()
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		mig = d.until(mig.ID, api.MigrationCopied)
		d.isRefused(mig)
		d.ends(mig, false)
	})
}

func TestACancelThatAppArmorWouldDenyStopsNoCopy(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig, letGo := d.copying()
		d.world.DenyWrite(srcPath, rulesFile)
		d.isRefused(mig)
		synctest.Wait()
		if now := d.get(mig.ID); now.State != api.MigrationCopying || now.Error != nil {
			t.Errorf("the migration is %s, %v; want that it copies", now.State, now.Error)
		}
		letGo()
		d.ends(d.until(mig.ID, api.MigrationCopied), false)
	})
}

// libvirt makes the rule when the cancel has ended the block job of the complete.
func TestACancelDuringTheBlockJobOfAConfinedGuestLeavesTheMoveToItsEnd(t *testing.T) {
	for _, confined := range []bool{true, false} {
		inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
			if confined {
				d.world.Confine(rulesFile)
			}
			must(t, d.world.Start(testInstance))
			d.world.SetStep(0) // jobs make no progress
			id := d.migrate()
			d.until(id, api.MigrationCompleting)
			pass(time.Minute)
			_, opID, err := d.manager().Cancel(t.Context(), d.call(id))
			want := api.MigrationCancelled
			if confined {
				want = api.MigrationCompleted
				if api.CodeOf(err) != api.CodePermissionDenied || opID != "" || !strings.Contains(err.Error(), "migration complete "+id) {
					t.Errorf("op %q, %v; want permission_denied before an op is made, with the command that completes the migration", opID, err)
				}
			} else {
				must(t, err)
			}
			d.world.SetStep(8)
			d.until(id, want)
		})
	}
}

// The rule is made between the call and the cancel's admission.
func TestACancelThatIsDeniedAtItsAdmissionLeavesTheMoveToItsEnd(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.copied()
		d.world.Inject(hvtest.Fault{Call: "WriteDeniedBy", Nth: 2, Do: func() { d.world.DenyWrite(srcPath, rulesFile) }})
		call := d.call(mig.ID)
		_, _, err := d.manager().Cancel(context.Background(), call)
		must(t, err)
		saysHow(t, d.ended(call.OpID), srcPath)
		if now := d.get(mig.ID); now.State != api.MigrationCopied {
			t.Errorf("the migration is %s, want copied", now.State)
		}
		d.ends(mig, false)
	})
}

func TestACancelOfAStoppedGuestAsksNoRule(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		d.world.DenyWrite(srcPath, rulesFile)
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestAMoveToWhereAppArmorDeniesTheGuestToWriteIsRefused(t *testing.T) {
	for _, method := range []string{"overlay", "mirror"} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			dst := filepath.Join(t.TempDir(), "dst.raw")
			target := api.MigrationTarget{ToPath: dst, Method: method}
			d.world.DenyWrite(dst, rulesFile)
			_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
			saysHow(t, api.AsError(err), dst)
			d.stayed()
		})
	}
}
