// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/internal/api"
)

func TestNothingIsAttachedThroughALinkInAPool(t *testing.T) {
	inBubble(t, func(t *testing.T, d *daemon) {
		planted := hosttest.PlantLink(t, d.world.Fake, testSize)
		d.world.registry.vol.Location = planted.Location
		planted.Refused(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})))
		if changes := d.world.registry.changes; len(changes) != 0 {
			t.Errorf("the registry was told %v", changes)
		}
	})
}
