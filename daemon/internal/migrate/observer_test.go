// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

type heard struct {
	mu     sync.Mutex
	counts map[string]int
	stalls map[string]time.Duration // the longest
}

func (h *heard) count(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts, h.stalls = map[string]int{}, map[string]time.Duration{}
	}
	h.counts[what]++
}

func (h *heard) PhaseDone(phase string, took time.Duration) {
	if took < 0 {
		phase += " in " + took.String()
	}
	h.count("phase " + phase)
}

func (h *heard) GuestStalled(at string, d time.Duration) {
	h.count("stall " + at)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stalls[at] = max(h.stalls[at], d)
}

func (h *heard) MigrationEnded(result api.MigrationState) { h.count("ended " + string(result)) }

// want checks the events, once everything is idle.
func (h *heard) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[string]int{}
	for _, w := range want {
		counts[w]++
	}
	if diff := cmp.Diff(counts, h.counts); diff != "" {
		t.Errorf("the observer heard (-want +got)\n%s", diff)
	}
}

func TestEachPartOfAMigrationIsToldOnceThroughARestart(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		d.Restart()
		close(d.world.Copier.Gate)
		d.until(id, api.MigrationCompleted)
		d.Restart()
		d.heard.want(t, "phase start", "stall start", "phase copy", "phase complete", "stall switch", "ended completed")
	})
}

func TestAGuestThatIsOffHasNoStall(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.until(d.migrate(), api.MigrationCompleted)
		d.heard.want(t, "phase start", "phase copy", "phase complete", "ended completed")
	})
}

func TestACancelEndsAMigrationAndTheCopyItStoppedIsNoPhase(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		_, _, err := d.manager().Cancel(context.Background(), d.call(id))
		must(t, err)
		d.until(id, api.MigrationCancelled)
		d.heard.want(t, "phase start", "stall start", "phase cancel", "stall switch", "ended cancelled")
	})
}

func TestAStartThatIsUndoneIsAMigrationThatEndedInError(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "Snapshot", Err: fmt.Errorf("no: %w", hv.ErrUnsupported)})
		// The refusal is the answer, if it comes soon enough.
		_, _ = d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool})
		all, err := d.manager().List(context.Background(), true)
		must(t, err)
		d.until(all[0].ID, api.MigrationError)
		d.heard.want(t, "ended error")
	})
}

// A complete that is undone resumes the guest; that pause does not count.
func TestTheStallIsThatOfTheLastPause(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "Pivot", Err: hv.ErrUnsupported})
		id := d.migrate()
		pass(time.Hour)
		mig := d.until(id, api.MigrationCopied)
		_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: id, DstAttachmentID: mig.DstAttachmentID})
		must(t, err)
		d.until(id, api.MigrationCompleted)
		d.heard.want(t, "phase start", "stall start", "phase copy", "phase complete", "stall switch", "ended completed")
		if longest := d.heard.stalls["switch"]; longest > move.DrainBound {
			t.Errorf("the stall is %s, want that of the second pause", longest)
		}
	})
}

func TestTheRunUpIsToldOnce(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx, cancel := context.WithCancel(context.Background())
		told := 0
		ended := make(chan error)
		go func() { ended <- d.manager().Run(ctx, func() { told++ }) }()
		synctest.Wait()
		if told != 1 {
			t.Errorf("told %d times that the first look is over, want once", told)
		}
		cancel()
		must(t, <-ended)
	})
}

func TestGuestDiskIsThatOfAnOpOfAMigration(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		d.until(d.migrate(), api.MigrationCopying)
		active := d.runner().Active()
		if len(active) != 1 {
			t.Fatalf("%d ops are active, want the copy", len(active))
		}
		if id, target, ok := GuestDisk(active[0].Op); !ok || id != testInstance || target != "vda" {
			t.Errorf("the disk is %s %s (%v)", id, target, ok)
		}
		if _, _, ok := GuestDisk(op.Op{Kind: "volume_create", Input: active[0].Op.Input}); ok {
			t.Error("the op of a volume has a guest's disk")
		}
		close(d.world.Copier.Gate)
	})
}
