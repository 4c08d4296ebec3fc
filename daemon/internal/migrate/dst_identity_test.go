// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// The copied data is lost with the old file.
func TestAMoveEndsWhereItsDstIsReplacedBeforeTheSwitch(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCopied)
				d.world.Replace(t, mig.Dst.Path)
				c := d.call(mig.ID)
				c.DstAttachmentID = mig.DstAttachmentID
				_, id, err := d.manager().Complete(context.Background(), c)
				must(t, err)
				if refused := d.ended(id); refused == nil || refused.Code != api.CodeDstInUse {
					t.Errorf("complete ended with %v, want dst_in_use", refused)
				}
			})
		})
	}
}
