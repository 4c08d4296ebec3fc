// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/internal/api"
)

// QEMU pauses a guest for ENOSPC with any of the allowed policies of its disk, and for EDQUOT only
// with the policy stop.
func TestADiskGetsAnOverlayUnderAQuotaOnlyIfItsGuestIsPausedWhenThatIsUsedUp(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		limit  quota.Limit
		method string
	}{
		"any error pauses it":                  {"stop", quota.Limit{Kind: quota.User, Bytes: 1 << 40}, move.MethodOverlay},
		"no policy":                            {"", quota.Limit{Kind: quota.User, Bytes: 1 << 40}, move.MethodMirror},
		"enospace":                             {"enospace", quota.Limit{Kind: quota.Project, Bytes: 1 << 40}, move.MethodMirror},
		"the quota says what a full disk says": {"", quota.Limit{Kind: quota.Project, Bytes: 1 << 40, AsFull: true}, move.MethodOverlay},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
				d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].ErrorPolicy = c.policy })
				must(t, d.world.Start(testInstance))
				d.world.Images.Quota.Store(&c.limit)
				mig := d.until(d.migrate(), api.MigrationCompleted)
				d.moved(mig)
				if mig.Method != c.method {
					t.Errorf("the method is %s, want %s", mig.Method, c.method)
				}
			})
		})
	}
}

func TestAnOverlayThatIsAskedForUnderAQuotaIsRefusedWithTheReason(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Images.Quota.Store(&quota.Limit{Kind: quota.User, Bytes: 1 << 40})
		_, err := d.manager().Start(context.Background(), StartRequest{
			OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPool: "new", Method: move.MethodOverlay}, Composite: true,
		})
		if api.CodeOf(err) != api.CodeUnsupportedDisk || !strings.Contains(err.Error(), "quota") {
			t.Errorf("got %v (%s), want a refusal that names the quota", err, api.CodeOf(err))
		}
		d.stayed()
	})
}

func TestAStartCountsWhatIsLeftOfTheQuotaOfItsOverlay(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		next := &move.Spec{MigrationID: uuid.NewString(), VolumeName: "next", InstanceID: testInstance, Src: api.Location{SizeBytes: testSize}}
		m := d.manager()
		m.cfg.OverlayMinFreeBytes = 1 << 40
		room := m.Preflight.OverlayRoom(next)
		d.world.Images.Quota.Store(&quota.Limit{Kind: quota.User, Bytes: 1 << 30, UsedBytes: 1<<30 - room + 1})
		if err := m.Preflight.CheckOverlaySpace(context.Background(), next); api.CodeOf(err) != api.CodeNoSpace {
			t.Errorf("with a byte too few: %v, want no_space", err)
		}
		d.world.Images.Quota.Store(&quota.Limit{Kind: quota.User, Bytes: 1 << 30, UsedBytes: 1<<30 - room})
		must(t, m.Preflight.CheckOverlaySpace(context.Background(), next))
	})
}

// The hypervisor reports EDQUOT without a reason, and the filesystem has space.
func TestAGuestThatAUsedUpQuotaHasPausedGoesOnWhenTheQuotaIsRaised(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].ErrorPolicy = "stop" })
		must(t, d.world.Start(testInstance))
		mig := d.begin(toNewPool)
		must(t, d.world.SetFull(overlayOf(mig), true))
		d.world.Images.Quota.Store(&quota.Limit{Kind: quota.User, Bytes: 1 << 30, UsedBytes: 1 << 30})
		d.world.GuestWrites()
		d.overlaysWatched() // after the event
		pass(2 * monitor.OverlayWatchEvery)
		if got := d.get(mig.ID).GuestPaused; !strings.Contains(got, "no room for its overlay") {
			t.Errorf("the migration says %q, want that there is no room", got)
		}
		must(t, d.world.SetFull(overlayOf(mig), false))
		d.world.Images.Quota.Store(&quota.Limit{Kind: quota.User, Bytes: 2 << 30, UsedBytes: 1 << 30})
		pass(2 * monitor.OverlayPoll)
		synctest.Wait()
		if dom := d.instance(); dom.State != hv.StateRunning {
			t.Fatalf("the guest is %s (%s) though its quota was raised", dom.State, dom.PauseReason)
		}
		d.copyAndCancel(mig.ID)
		d.until(mig.ID, api.MigrationCancelled)
	})
}
