// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// The identity of the world's images when the migration begins, and of another device that got the
// number of one of them.
const ours, another = "device naa.60014050000", "device naa.6001405ffff"

// devices makes all images of the world devices, with our identity except at the path but.
func (d *daemon) devices(but string) {
	d.world.Images.Mu.Lock()
	defer d.world.Images.Mu.Unlock()
	d.world.Images.Print = func(path string) string {
		if path == but {
			return another
		}
		return ours
	}
}

// This holds at any call of a move, and the same call continues once our device is at the path
// again.
func TestADeviceThatGotTheNumberOfOursIsNotTakenForIt(t *testing.T) {
	ctx := context.Background()
	copyIt := func(d *daemon, mig api.Migration) (string, error) {
		_, id, err := d.manager().Copy(ctx, d.call(mig.ID))
		return id, err
	}
	complete := func(d *daemon, mig api.Migration) (string, error) {
		c := d.call(mig.ID)
		c.DstAttachmentID = mig.DstAttachmentID
		_, id, err := d.manager().Complete(ctx, c)
		return id, err
	}
	cancel := func(d *daemon, mig api.Migration) (string, error) {
		_, id, err := d.manager().Cancel(ctx, d.call(mig.ID))
		return id, err
	}
	started := func(d *daemon) api.Migration { return d.begin(toNewPool) }
	copied := func(d *daemon) api.Migration { return d.copied() }
	for name, c := range map[string]struct {
		until func(*daemon) api.Migration
		call  func(*daemon, api.Migration) (string, error)
		dst   bool
		code  api.Code
	}{
		"copy, src":     {started, copyIt, false, api.CodeChainChanged},
		"copy, dst":     {started, copyIt, true, api.CodeDstInUse},
		"complete, src": {copied, complete, false, api.CodeChainChanged},
		"complete, dst": {copied, complete, true, api.CodeDstInUse},
		"cancel, src":   {copied, cancel, false, api.CodeChainChanged},
	} {
		for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
			t.Run(name+", "+string(state), func(t *testing.T) {
				inBubble(t, state, func(t *testing.T, d *daemon) {
					d.devices("")
					mig := c.until(d)
					path := mig.Src.Path
					if c.dst {
						path = mig.Dst.Path
					}
					before := d.get(mig.ID).State
					d.devices(path)
					id, err := c.call(d, mig)
					must(t, err)
					refused := d.ended(id)
					if refused == nil || refused.Code != c.code || !strings.Contains(refused.Message, another) || !strings.Contains(refused.Message, ours) {
						t.Fatalf("it ended with %v, want %s with both identities", refused, c.code)
					}
					if got := d.get(mig.ID).State; got != before {
						t.Errorf("the migration is %s, want %s as before", got, before)
					}
					d.devices("")
					id, err = c.call(d, mig)
					must(t, err)
					if refused := d.ended(id); refused != nil {
						t.Errorf("with ours there again: %v", refused)
					}
				})
			})
		}
	}
}

// The registry has the identity since the volume was adopted or moved.
func TestAMoveDoesNotBeginOnAnotherDeviceThanTheVolumes(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				d.devices(srcPath)
				d.world.Registry.Vol.Location.Identity = strings.TrimPrefix(ours, "device ")
				_, err := d.manager().Start(t.Context(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool})
				if refused := api.AsError(err); refused.Code != api.CodeChainChanged || refused.Details["expected"] != "naa.60014050000" || refused.Details["found"] != "naa.6001405ffff" {
					t.Errorf("it is refused with %v, %v", refused, refused.Details)
				}
				d.devices("")
				d.begin(toNewPool)
			})
		})
	}
}

// The volume has the identity after the move.
func TestADestinationThatIsThereIsReservedWithItsIdentity(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.devices("")
		mig := d.begin(api.MigrationTarget{ToPath: d.somebodysFile(t), Overwrite: true})
		if got := d.world.Registry.Rows[mig.ID].Dst.Identity; got != "naa.60014050000" {
			t.Errorf("dst is reserved with the identity %q", got)
		}
	})
}
