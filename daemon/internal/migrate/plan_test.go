// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
)

func TestAPlanSaysWhatTheMoveThenDoesAndDoesNothing(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				plan, err := d.manager().Plan(context.Background(), testVolume, toNewPool)
				must(t, err)
				if plan.Method != steps.MethodOverlay || !plan.CreatesDestination || plan.DeleteSource || plan.Src.Path != srcPath || plan.Dst.Pool != "new" || !strings.Contains(plan.Dst.Name, "-<id>") || !strings.HasSuffix(plan.Dst.Path, "/"+plan.Dst.Name) || plan.InstanceID != testInstance {
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
