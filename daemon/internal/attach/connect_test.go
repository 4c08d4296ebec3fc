// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// TestAVolumeOfATargetIsConnectedWhileItIsAttached, in each state of its instance, with the volume
// in its connecting pool or in no pool.
func TestAVolumeOfATargetIsConnectedWhileItIsAttached(t *testing.T) {
	const lun = "/dev/vf-lun"
	for _, at := range []api.Location{{Path: lun}, {Path: lun, Pool: "san", Name: "vf-lun"}} {
		for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
			inBubble(t, func(t *testing.T, d *daemon) {
				must(t, d.world.AddTarget(lun, testSize))
				d.world.AddPool(hv.PoolInfo{Name: "san", Type: hv.ConnectorPool, Path: "/dev", Active: true, NoCreate: true})
				at.Format, at.SizeBytes = api.FormatRaw, testSize
				d.world.registry.vol.Location = at
				d.world.registry.vol.Host = testHost
				must(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})))
				live, config := d.disks(t, web)
				if !d.world.Connected(lun) || config == nil || config.Chain[0].Type != hv.SourceBlock || state.Active() && live == nil {
					t.Errorf("%s: connected %v, live %+v, config %+v", state, d.world.Connected(lun), live, config)
				}
				must(t, failed(d.detach("b", web)))
				if d.world.Connected(lun) {
					t.Errorf("%s: it is connected after its detach", state)
				}
			}, state)
		}
	}
}

// TestAVolumeThatItsPoolDoesNotHaveIsNotAttached, even if a target has a volume at its path.
func TestAVolumeThatItsPoolDoesNotHaveIsNotAttached(t *testing.T) {
	const lun = "/dev/vf-lun"
	inBubble(t, func(t *testing.T, d *daemon) {
		must(t, d.world.AddTarget(lun, testSize))
		d.world.AddPool(hv.PoolInfo{Name: "san", Type: hv.ConnectorPool, Path: "/dev/elsewhere", Active: true, NoCreate: true})
		d.world.registry.vol.Location = api.Location{Path: lun, Pool: "san", Name: "vf-lun", Format: api.FormatRaw, SizeBytes: testSize}
		d.world.registry.vol.Host = testHost
		if err := failed(d.attach("a", api.VolumeAttach{Instance: "web"})); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("it is %v, want not_found", err)
		}
		if d.world.Connected(lun) {
			t.Error("it is connected")
		}
		d.world.wantNone(t)
	}, hv.StateRunning)
}

// TestAnAttachThatFailsDisconnectsWhatItHasConnected.
func TestAnAttachThatFailsDisconnectsWhatItHasConnected(t *testing.T) {
	const lun = "/dev/vf-lun"
	inBubble(t, func(t *testing.T, d *daemon) {
		must(t, d.world.AddTarget(lun, testSize/2))
		d.world.registry.vol.Location = api.Location{Path: lun, Format: api.FormatRaw, SizeBytes: testSize}
		d.world.registry.vol.Host = testHost
		if err := failed(d.attach("a", api.VolumeAttach{Instance: "web"})); err == nil {
			t.Error("a device that is too small is attached")
		}
		if d.world.Connected(lun) {
			t.Error("it is connected")
		}
		d.world.wantNone(t)
	}, hv.StateRunning)
}
