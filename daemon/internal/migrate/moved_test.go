// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// This host corrects the registry's answers from before a move, and not the later ones.
func TestAMoveCorrectsWhatWasKnownBeforeIt(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		moved := func(vol api.Volume) string {
			t.Helper()
			to, err := d.manager().Which.Moved(context.Background(), []api.Volume{vol})
			must(t, err)
			return to[vol.ID].Path
		}
		before := d.world.Registry.CurrentVolume()
		id := d.begin(toNewPool).ID
		if got := moved(before); got != "" {
			t.Errorf("under way: it is at %q", got)
		}
		_, _, err := d.manager().Copy(context.Background(), d.call(id))
		must(t, err)
		d.until(id, api.MigrationCopied)
		complete := d.call(id)
		complete.DstAttachmentID = d.get(id).DstAttachmentID
		_, _, err = d.manager().Complete(context.Background(), complete)
		must(t, err)
		mig := d.until(id, api.MigrationCompleted)
		if got := moved(before); got != mig.Dst.Path {
			t.Errorf("known as before: it is at %q, want %s", got, mig.Dst.Path)
		}
		if got := moved(d.world.Registry.CurrentVolume()); got != "" {
			t.Errorf("known as it is: it was moved to %q", got)
		}
	})
}
