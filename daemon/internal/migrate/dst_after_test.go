// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

func TestACancelledMoveSaysWhetherItsDestinationWasDeleted(t *testing.T) {
	for name, exists := range map[string]bool{api.DstDeleted: false, api.DstKept: true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				target := toNewPool
				if exists {
					target = api.MigrationTarget{ToPath: filepath.Join(t.TempDir(), "there.raw"), Overwrite: true}
					must(t, d.world.CreateImage(target.ToPath, hvtest.Raw, testSize))
				}
				mig := d.begin(target)
				if mig.DstAfter != "" {
					t.Errorf("an open move has a destination that is %q", mig.DstAfter)
				}
				if mig = d.until(d.cancels(mig.ID), api.MigrationCancelled); mig.DstAfter != name {
					t.Errorf("the destination of the cancelled move is %q, want %q (%s)", mig.DstAfter, name, mig.Remark)
				}
				if there := d.world.Exists(mig.Dst.Path); there != exists {
					t.Errorf("the destination exists: %v, want %v", there, exists)
				}
			})
		})
	}
}
