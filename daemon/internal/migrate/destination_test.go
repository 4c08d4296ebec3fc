// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

func TestADestinationThatIsAVolumeByAnotherNameIsRefused(t *testing.T) {
	for n, name := range []string{"its own path", "a hard link", "a symbolic link", "a linked directory"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				path, names := d.world.Aliases(t)
				d.world.Registry.Others = []api.Volume{migratetest.VolumeAt(path)}
				_, err := d.manager().Start(context.Background(), StartRequest{
					OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPath: names[n]}, Composite: true,
				})
				if api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), "is volume free already") {
					t.Errorf("got %v, want dst_in_use by volume free", err)
				}
				d.stayed()
			})
		})
	}
}

// A free destination is, once it is reserved, another volume by another name.
func TestADestinationThatIsTakenBehindTheRegistryIsNotWritten(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		r := d.world.Registry
		path, names := d.world.Aliases(t)
		r.Moments.Look = func() {
			r.Lock()
			defer r.Unlock()
			if len(r.Rows) > 0 && len(r.Others) == 0 {
				r.Others = []api.Volume{migratetest.VolumeAt(path)}
			}
		}
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPath: names[1]}), api.MigrationError)
		if mig.Error == nil || mig.Error.Code != api.CodeDstInUse {
			t.Errorf("it ended with %v, want dst_in_use", mig.Error)
		}
		if info, err := d.world.Info(names[1]); err != nil || info.Allocated > 0 {
			t.Errorf("%d blocks of the other volume were written (%v)", info.Allocated, err)
		}
		d.stayed()
	})
}

// This holds also for a path without a file.
func TestADestinationAtAPathIsInAPoolOrInAnAllowedPlace(t *testing.T) {
	for name, pool := range map[string]bool{"free": false, "in a pool": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				if pool {
					d.world.AddPool(hv.PoolInfo{Name: "open", Type: "dir", Path: "/usr", Active: true})
				}
				_, err := d.manager().Start(context.Background(), StartRequest{
					OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPath: "/usr/dst.raw"},
				})
				if refused := api.CodeOf(err) == api.CodePermissionDenied; refused == pool || pool && err != nil {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// This holds also where volumes may not be.
func TestADirectoryAsDestinationIsRefusedWithTheNameOfAFileInIt(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/usr"} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			_, err := d.manager().Start(context.Background(), StartRequest{
				OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPath: dir, ToFormat: api.FormatQcow2}, Composite: true,
			})
			if api.CodeOf(err) != api.CodeInvalidArgument || !strings.Contains(err.Error(), dir+" is a directory") || !strings.Contains(err.Error(), "--to-path "+dir+"/vol.qcow2") {
				t.Errorf("got %v, want that %s is a directory, with a file in it", err, dir)
			}
			d.stayed()
		})
	}
}

func TestACancelThatLeavesWhatIsAtItsDestinationSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		replaced bool
		want     string
	}{
		"ours":                 {false, ""},
		"another file by then": {true, "is left as it is"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				if c.replaced {
					d.world.Replace(t, mig.Dst.Path)
				}
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(t, err)
				got := d.until(mig.ID, api.MigrationCancelled)
				if d.world.Exists(mig.Dst.Path) != c.replaced || (got.Remark == "") != (c.want == "") || !strings.Contains(got.Remark, c.want) {
					t.Errorf("the remark is %q, dst is there: %v", got.Remark, d.world.Exists(mig.Dst.Path))
				}
			})
		})
	}
}
