// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func TestAStartThatQEMUDoesNotFreezeIsAnErrorOfTheStartAndUndone(t *testing.T) {
	for _, composite := range []bool{false, true} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			must(t, d.world.KeepWritable(testInstance))
			id := uuid.NewString()
			mig, err := d.manager().Start(context.Background(), StartRequest{OpID: id, VolumeID: testVolume, Target: toNewPool, Composite: composite})
			must(t, err)
			mig = d.until(mig.ID, api.MigrationCancelled)
			calm(d)
			d.gone(mig)
			o, err := d.manager().Request(context.Background(), id)
			must(t, err)
			if o.State != "undone" || o.Error == nil || o.Error.Code != api.CodeUnsupportedDisk {
				t.Errorf("the start is %s: %v, want undone: unsupported_disk", o.State, o.Error)
			}
			if mig.Error == nil {
				t.Error("the migration does not say why it was cancelled")
			}
		})
	}
}
