// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// volumePath is the path of a volume of a target, which exists while it is connected.
const volumePath = "/dev/vf-lun"

func TestAVolumeMovesToATargetAndBackAndIsConnectedMeanwhile(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				must(t, d.world.AddTarget(volumePath, testSize))
				mig := d.until(d.migrateTo(api.MigrationTarget{ToPath: volumePath}), api.MigrationCompleted)
				if mig.Dst.Path != volumePath || !d.world.Connected(volumePath) {
					t.Fatalf("it is at %s, connected %v", mig.Dst.Path, d.world.Connected(volumePath))
				}
				d.until(d.migrateTo(toNewPool), api.MigrationCompleted)
				if d.world.Connected(volumePath) {
					t.Error("what the volume has left is connected")
				}
			})
		})
	}
}

func TestAPlanSaysOfAVolumeOfATargetThatItIsConnectedForTheMoveUnlessItIs(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		must(t, d.world.AddTarget(volumePath, testSize))
		for _, connected := range []bool{false, true} {
			if connected {
				must(t, d.world.Fake.ConnectDevice(t.Context(), volumePath))
			}
			plan, err := d.manager().Plan(t.Context(), testVolume, api.MigrationTarget{ToPath: volumePath})
			must(t, err)
			if plan.ConnectsDestination == connected || plan.CreatesDestination || d.world.Connected(volumePath) != connected {
				t.Errorf("connected %v: the plan is %+v", connected, plan)
			}
		}
	})
}

// The move is cancelled, or refused once dst was connected.
func TestAMoveToATargetThatEndsInVainDisconnectsIt(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		must(t, d.world.AddTarget(volumePath, testSize))
		mig := d.begin(api.MigrationTarget{ToPath: volumePath})
		if !d.world.Connected(volumePath) {
			t.Error("it is not connected when src is frozen")
		}
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		if got := d.until(mig.ID, api.MigrationCancelled); d.world.Connected(volumePath) || got.Remark == "" {
			t.Errorf("connected %v, with the remark %q", d.world.Connected(volumePath), got.Remark)
		}
		d.stayed()
	})
	for name, bytes := range map[string]int64{"smaller": testSize / 2, "larger": 2 * testSize} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			must(t, d.world.AddTarget(volumePath, bytes))
			mig := d.until(d.migrateTo(api.MigrationTarget{ToPath: volumePath}), api.MigrationError)
			if mig.Error == nil || mig.Error.Code != api.CodeSizeMismatch || d.world.Connected(volumePath) {
				t.Errorf("%s: it ended with %v, connected %v", name, mig.Error, d.world.Connected(volumePath))
			}
			d.stayed()
		})
	}
}

// The size is known once it is connected.
func TestALargerVolumeOfATargetThatIsConnectedIsTakenByItsBeginning(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		must(t, d.world.AddTarget(volumePath, 2*testSize))
		must(t, d.world.Fake.ConnectDevice(t.Context(), volumePath))
		d.until(d.migrateTo(api.MigrationTarget{ToPath: volumePath}), api.MigrationCompleted)
		if err := d.world.SettledOn(hv.Image{Type: hv.SourceBlock, Format: hvtest.Raw, Path: volumePath, SliceBytes: testSize}); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatNoTargetHasIsRefusedAndNothingIsTouched(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		must(t, d.world.AddTarget(volumePath, testSize))
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPath: volumePath + "-none"}), api.MigrationError)
		if mig.Error == nil || mig.Error.Code != api.CodeNotFound {
			t.Errorf("it ended with %v", mig.Error)
		}
		d.stayed()
	})
}
