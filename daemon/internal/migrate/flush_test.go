// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// A guest with cache='unsafe' has its flushes left out: nothing of which the end of a
// fold is a copy goes before the end was flushed from here.
func TestTheEndIsFlushedBeforeTheOverlayGoes(t *testing.T) {
	for _, back := range []bool{false, true} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			mig, end := d.begin(toNewPool), srcPath
			if back {
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCancelled)
			} else {
				end = mig.Dst.Path
				_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCopied)
				c := d.call(mig.ID)
				c.DstAttachmentID = mig.DstAttachmentID
				_, _, err = d.manager().Complete(context.Background(), c)
				must(t, err)
				d.until(mig.ID, api.MigrationCompleted)
			}
			d.world.images.mu.Lock()
			defer d.world.images.mu.Unlock()
			log := d.world.images.durable
			gone := slices.IndexFunc(log, func(s string) bool { return strings.HasPrefix(s, "remove /overlays/") })
			if gone < 0 || !slices.Contains(log[:gone], "flush "+end) {
				t.Errorf("back %t: %v, want a flush of %s before the overlay goes", back, log, end)
			}
		})
	}
}
