// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// oursIdentity is the identity of the world's device that the registry must store.
var oursIdentity = strings.TrimPrefix(ours, "device ")

// The report follows as soon as the volume is on the device, and a registry that is unavailable
// stops no move.
func TestTheRegistryHearsWhichDeviceAMoveHasMade(t *testing.T) {
	for _, state := range allStates {
		for name, c := range map[string]struct {
			refused error
			stored  string
		}{
			"":                     {nil, oursIdentity},
			" and does not listen": {api.Errorf(api.CodeStateForbidden, "the registry lacks identities"), ""},
		} {
			t.Run(string(state)+name, func(t *testing.T) {
				inBubble(t, state, func(t *testing.T, d *daemon) {
					d.devices("")
					d.world.Registry.RefusesIdentity = c.refused
					mig := d.until(d.migrateTo(toNewPool), api.MigrationCompleted)
					if at := d.world.Registry.CurrentVolume().Location; at.Path != mig.Dst.Path || at.Identity != c.stored {
						t.Errorf("the registry has %s with %q, want %s with %q", at.Path, at.Identity, mig.Dst.Path, c.stored)
					}
				})
			})
		}
	}
}

// The registry takes dst from these answers.
func TestAMoveThatTheRegistryLeadsSaysWhichDeviceItHasMade(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		d.devices("")
		err := d.manager().Parts.CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		if o := d.untilOp(savedCopy); o.State != string(op.StateDone) || o.Location == nil || o.Location.Identity != oursIdentity {
			t.Errorf("the copy is %+v at %+v", o, o.Location)
		}
	})
	toMake(t, func(t *testing.T, d *daemon, v api.LiveVolume) {
		d.devices("")
		if made := d.make(v); made.Identity != oursIdentity {
			t.Errorf("dst is made at %+v", made)
		}
	})
}
