// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

func TestAPlanSaysWhatTheMoveThenDoesAndDoesNothing(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				plan, err := d.manager().Plan(context.Background(), testVolume, toNewPool)
				must(t, err)
				if plan.Method != move.MethodOverlay || !plan.CreatesDestination || plan.DeleteSource || plan.Src.Path != srcPath || plan.Dst.Pool != "new" || !strings.Contains(plan.Dst.Name, "-<id>") || !strings.HasSuffix(plan.Dst.Path, "/"+plan.Dst.Name) || plan.InstanceID != testInstance {
					t.Errorf("the plan is %+v", plan)
				}
				if plan.NeededBytes == nil || *plan.NeededBytes > testSize || plan.FreeBytes == nil || *plan.FreeBytes < *plan.NeededBytes {
					t.Errorf("the plan needs %v of %v bytes", plan.NeededBytes, plan.FreeBytes)
				}
				if plan.OverlayDir == "" || plan.OverlayFreeBytes == nil {
					t.Errorf("the plan does not say where the guest writes meanwhile: %+v", plan)
				}
				if list, err := d.manager().List(context.Background(), true); err != nil || len(list) != 0 || d.world.Exists(plan.Dst.Path) {
					t.Errorf("the plan left migrations %v (%v), or its destination", list, err)
				}
				mig := d.until(d.migrateTo(toNewPool), api.MigrationCompleted)
				if mig.Method != plan.Method || mig.Dst.Pool != plan.Dst.Pool || mig.Dst.SizeBytes != plan.Dst.SizeBytes || mig.Dst.Format != plan.Dst.Format {
					t.Errorf("the plan was %+v, the move %+v", plan, mig)
				}
			})
		})
	}
}

func TestAPlanIsRefusedWhileTheVolumeMoves(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.begin(toNewPool)
		if _, err := d.manager().Plan(context.Background(), testVolume, toNewPool); api.CodeOf(err) != api.CodeMigrationActive {
			t.Errorf("the plan of a second move: %v", err)
		}
	})
}

func TestAVolumeThatMayOutgrowItsPoolIsMovedWithAWarning(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		plan, err := d.manager().Plan(context.Background(), testVolume, toNewPool)
		must(t, err)
		if plan.Warning != "" || *plan.NeededBytes >= testSize {
			t.Fatalf("with room for all of it the plan warns %q, and takes %d of %d bytes", plan.Warning, *plan.NeededBytes, testSize)
		}
		d.world.Images.Free.Store(testSize - 1)
		plan, err = d.manager().Plan(context.Background(), testVolume, toNewPool)
		must(t, err)
		if !strings.Contains(plan.Warning, "pool new had") {
			t.Errorf("the plan warns %q", plan.Warning)
		}
		id := d.migrate()
		if mig := d.get(id); mig.Remark != plan.Warning {
			t.Errorf("at its beginning the remark is %q", mig.Remark)
		}
		if mig := d.until(id, api.MigrationCompleted); mig.Remark != plan.Warning {
			t.Errorf("at its end the remark is %q", mig.Remark)
		}
	})
}

// A move needs no space for the data that it overwrites.
func TestAPlanCountsTheFileThatIsOverwrittenAsFree(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		const free = testSize / 2
		path := d.somebodysFile(t)
		d.world.Images.Free.Store(free)
		has, err := d.manager().ports.Images.AllocatedBytes(path)
		must(t, err)
		plan, err := d.manager().Plan(context.Background(), testVolume, api.MigrationTarget{ToPath: path, Overwrite: true})
		must(t, err)
		if has == 0 || *plan.FreeBytes != free+has {
			t.Errorf("the plan has %d bytes free, with %d free and %d in the file", *plan.FreeBytes, free, has)
		}
	})
}

func TestAMoveThatWasCancelledHasNoWarningOfWhereItWent(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.world.Images.Free.Store(testSize - 1)
		mig := d.begin(toNewPool)
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		if mig = d.until(mig.ID, api.MigrationCancelled); mig.Remark != "" {
			t.Errorf("the remark is %q", mig.Remark)
		}
	})
}
