// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// leaveInPool moves the volume to the pool new and on to a file, and returns the source in the pool
// and the id of the move that has left it.
func (d *daemon) leaveInPool(t *testing.T) (path, id string) {
	t.Helper()
	path = d.until(d.migrate(), api.MigrationCompleted).Dst.Path
	return path, d.until(d.migrateTo(api.MigrationTarget{ToPath: filepath.Join(t.TempDir(), "on.raw")}), api.MigrationCompleted).ID
}

// pool starts or stops the pool new.
func (d *daemon) pool(active bool) {
	d.world.AddPool(hv.PoolInfo{Name: "new", Type: "dir", Path: "/new", CapacityBytes: 1 << 40, FreeBytes: 1 << 40, Active: active})
}

// isDeletedOnceThePoolIsStarted checks that only the pool prevents the deletion.
func (d *daemon) isDeletedOnceThePoolIsStarted(t *testing.T, path, id string) {
	t.Helper()
	d.nothingStands(t)
	d.pool(true)
	must(t, d.deleteSource(id))
	if d.world.Exists(path) {
		t.Error("the source is there")
	}
}

func (d *daemon) nothingStands(t *testing.T) {
	t.Helper()
	for _, st := range d.runner().Active() {
		t.Errorf("op %s (%s) is %s, waits for %q", st.Op.ID, st.Op.Kind, st.State, st.Waiting)
	}
}

func TestASourceThatItsTargetRemovesIsNotDeleted(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path, id := d.leaveInPool(t)
		target := func(of bool) {
			d.world.AddPool(hv.PoolInfo{Name: "new", Type: "dir", Path: "/new", CapacityBytes: 1 << 40, FreeBytes: 1 << 40, Active: true, NoCreate: of})
		}
		target(true)
		const why = "makes and removes"
		if err := d.deleteSource(id); api.CodeOf(err) != api.CodeStateForbidden || !strings.Contains(err.Error(), why) {
			t.Errorf("its deletion is %v, want state_forbidden", err)
		}
		if !d.world.Exists(path) {
			t.Error("the source is gone")
		}
		d.nothingStands(t)
		target(false)
		must(t, d.deleteSource(id))
		d.until(d.migrate(), api.MigrationCompleted)
		target(true)
		out := api.MigrationTarget{ToPath: filepath.Join(t.TempDir(), "out.raw"), DeleteSource: true}
		_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: out, Composite: true})
		if api.CodeOf(err) != api.CodeInvalidArgument || !strings.Contains(err.Error(), why) {
			t.Errorf("a move that deletes it is %v, want invalid_argument", err)
		}
	})
}

func TestASourceWhosePoolIsOffIsDeletedOnceThePoolIsStarted(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path, id := d.leaveInPool(t)
		d.pool(false)
		const start = "virsh pool-start new"
		for range 2 {
			if err := d.deleteSource(id); api.CodeOf(err) != api.CodeStateForbidden || !strings.Contains(err.Error(), start) {
				t.Errorf("%v, want state_forbidden with %s", err, start)
			}
		}
		for _, r := range d.released() {
			if r.Location.Path == path && !strings.Contains(r.Blocked, start) {
				t.Errorf("listed as %q, want %s", r.Blocked, start)
			}
		}
		if !d.world.Exists(path) {
			t.Error("the source is gone")
		}
		d.isDeletedOnceThePoolIsStarted(t, path, id)
	})
}

func TestADeletionWhosePoolIsStoppedMeanwhileIsUndone(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path, id := d.leaveInPool(t)
		d.world.Inject(hvtest.Fault{Call: "DeleteVolume", Do: func() { d.pool(false) }})
		if err := d.deleteSource(id); api.CodeOf(err) != api.CodeStateForbidden || !strings.Contains(err.Error(), "virsh pool-start new") {
			t.Errorf("%v, want state_forbidden with the way out", err)
		}
		d.isDeletedOnceThePoolIsStarted(t, path, id)
	})
}

// The volume of an inactive pool has no path, deleted or not.
func TestADeletionThatNobodyHasSeenEndIsLookedAtAgain(t *testing.T) {
	for name, again := range map[string]func(t *testing.T, d *daemon, id string){
		"by the same call":   func(t *testing.T, d *daemon, id string) { must(t, d.deleteSource(id)) },
		"as a daemon starts": func(_ *testing.T, d *daemon, _ string) { d.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				path, id := d.leaveInPool(t)
				d.world.Inject(hvtest.Fault{Call: "DeleteVolume", After: true, Err: hv.ErrNotReady, Do: func() { d.pool(false) }})
				opID := uuid.NewString()
				_, err := d.manager().Released.Delete(context.Background(), opID, id, false)
				if api.CodeOf(err) != api.CodeNeedsOperator || !strings.Contains(err.Error(), "virsh pool-start new") {
					t.Fatalf("%v, want needs_operator with the way out", err)
				}
				if err := d.deleteSource(id); api.CodeOf(err) != api.CodeNeedsOperator {
					t.Errorf("with the pool still off: %v, want needs_operator", err)
				}
				if n := len(d.runner().Active()); n != 1 {
					t.Errorf("%d ops, want the one that waits for the operator", n)
				}
				d.pool(true)
				again(t, d, id)
				pass(time.Second)
				st, err := d.runner().Status(context.Background(), opID)
				must(t, err)
				if st.State != op.StateDone || d.world.Exists(path) {
					t.Errorf("the op is %s (%v), the source is there: %t", st.State, st.Failure, d.world.Exists(path))
				}
				d.nothingStands(t)
			})
		})
	}
}
