// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// The cancel names the image that it cannot delete, with the command that helps, and continues when
// it is called again.
func TestACancelWhoseDestinationPoolIsOffNamesTheWayOut(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		pool := hv.PoolInfo{Name: "new", Type: "dir", Path: "/new", CapacityBytes: 1 << 40, FreeBytes: 1 << 40}
		d.world.AddPool(pool)
		_, id, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		if stopped := d.ended(id); stopped == nil || !strings.Contains(stopped.Message, "virsh pool-start new") {
			t.Errorf("the cancel ended with %v", stopped)
		}
		now := d.get(mig.ID)
		if now.State != api.MigrationNeedsOperator {
			t.Fatalf("the migration is %s, %v", now.State, now.Error)
		}
		want := "virsh pool-start new, then volferryctl migration cancel " + mig.ID
		if again, _ := now.Cures(); again != want {
			t.Errorf("next is %q, want %q", again, want)
		}
		if check := api.CheckMoves([]api.Migration{now}); !strings.Contains(check.Advice, want) {
			t.Errorf("status says %+v", check)
		}
		pool.Active = true
		d.world.AddPool(pool)
		_, _, err = d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}
