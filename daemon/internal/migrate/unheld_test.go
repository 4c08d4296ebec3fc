// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// shelve leaves the volume to n instances that no host has.
func (d *daemon) shelve(n int) {
	d.t.Helper()
	must(d.t, d.world.Undefine(testInstance))
	d.world.InOldPool()
	r := d.world.Registry
	r.Lock()
	defer r.Unlock()
	att := r.Vol.Attachments[0]
	att.Host, r.Vol.Attachments = "", nil
	for range n {
		r.Vol.Attachments = append(r.Vol.Attachments, att)
		att.ID, att.InstanceID = uuid.NewString(), uuid.NewString()
	}
}

// unheldAt checks that the volume is at path, as are its attachments, and that nothing of a
// migration remains.
func (d *daemon) unheldAt(path string, gone ...string) {
	d.t.Helper()
	vol := d.world.Registry.CurrentVolume()
	if vol.Location.Path != path || vol.MigrationID != "" || !d.world.Exists(path) {
		d.t.Errorf("the volume is at %s with migration %q, want it at %s", vol.Location.Path, vol.MigrationID, path)
	}
	for _, path := range append(gone, overlayPath) {
		if d.world.Exists(path) {
			d.t.Errorf("%s is left", path)
		}
	}
	if g := d.world.Guards.Guarded(); len(g) > 0 {
		d.t.Errorf("guards are left: %v", g)
	}
}

func TestAVolumeOfShelvedInstancesIsMovedAsIfItWereAttachedToNothing(t *testing.T) {
	for _, n := range []int{1, 2} {
		inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
			d.shelve(n)
			target := toNewPool
			target.DeleteSource = true
			mig := d.until(d.migrateTo(target), api.MigrationCompleted)
			d.unheldAt(mig.Dst.Path, srcPath)
			if mig.Method != move.MethodOffline || mig.InstanceID != "" || mig.SrcAttachmentID != "" || mig.DstAttachmentID != "" {
				t.Errorf("the migration is %+v", mig)
			}
			if last := d.world.Registry.Last; last.SrcAttachmentID != "" || last.DstAttachmentID != "" {
				t.Errorf("registered %+v", last)
			}
		})
	}
}

func TestAVolumeOfAShelvedInstanceIsMovedByAnyHostThatHasItsSharedPool(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.shelve(1)
		d.world.AddPool(hv.PoolInfo{Name: "old", Type: "netfs", Path: "/old", Active: true})
		att := d.world.Registry.Vol.Attachments
		d.world.Elsewhere("old")
		d.world.Registry.Vol.Attachments, d.world.Registry.Vol.Status = att, api.VolumeInUse
		d.unheldAt(d.until(d.migrate(), api.MigrationCompleted).Dst.Path)
	})
}

func TestTheDaemonDiesAtEveryCallOfAMoveForAShelvedInstance(t *testing.T) {
	// Most calls of such a move are the registry's.
	dies := func(t *testing.T, end func(d *daemon, id string)) {
		hosttest.BeforeAndAfter(t, func(t *testing.T, after bool) {
			atEveryCall(t, hv.StateStopped, func(_ *testing.T, d *daemon, n int) bool {
				d.shelve(1)
				d.world.Copier.Gate = make(chan struct{})
				id := d.migrate()
				d.until(id, api.MigrationCopying)
				moments := d.world.Registry.Moments
				moments.Arrange(n, hosttest.Happening{After: after, Do: func() { go d.Restart() }})
				end(d, id)
				return moments.Happened()
			})
		})
	}
	t.Run("complete", func(t *testing.T) {
		dies(t, func(d *daemon, id string) {
			close(d.world.Copier.Gate)
			mig := d.until(id, api.MigrationCompleted)
			calm(d)
			d.unheldAt(mig.Dst.Path)
		})
	})
	t.Run("cancel", func(t *testing.T) {
		dies(t, func(d *daemon, id string) {
			_, _, err := d.manager().Cancel(context.Background(), d.call(id))
			must(d.t, err)
			mig := d.until(id, api.MigrationCancelled)
			calm(d)
			d.unheldAt(srcPath, mig.Dst.Path)
		})
	})
}

// A volume with a migration that the registry has ended during the fence may be in use: an instance
// from the shelf may write to src.
func TestAFencedHostLetsGoOfTheVolumeOfAShelvedInstance(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.shelve(1)
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		d.fenced()
		d.world.Registry.Abandon(id)
		close(d.world.Copier.Gate)
		d.rejoined()
		mig := d.until(id, api.MigrationError)
		pass(time.Minute)
		d.unheldAt(srcPath)
		if !d.world.Exists(mig.Dst.Path) {
			t.Error("dst is gone, which may be another volume's")
		}
	})
}
