// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func TestNothingIsMovedThroughALinkInAPool(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		planted := hosttest.PlantLink(t, d.world.Fake, testSize)
		_, err := d.manager().Start(context.Background(), StartRequest{
			OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPath: planted.Location.Path}, Composite: true,
		})
		planted.Refused(t, err)
		d.stayed()
	})
}
