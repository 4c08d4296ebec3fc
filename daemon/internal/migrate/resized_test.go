// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// The image was resized, and the registry does not know that yet.
func TestASourceThatHasGrownIsMovedWhole(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		vol := &d.world.Registry.Vol
		vol.SizeBytes -= hvtest.BlockSize
		vol.Location.SizeBytes -= hvtest.BlockSize
		mig := d.until(d.migrate(), api.MigrationCompleted)
		d.moved(mig)
		if mig.Dst.SizeBytes != testSize {
			t.Errorf("dst has %d bytes, want %d", mig.Dst.SizeBytes, testSize)
		}
	})
}

// QEMU would end the mirror ten times without a reason.
func TestACompleteOfADiskThatWasResizedSaysTheSizesAndTheWayOut(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopied)
		d.world.Images.Resized.Store(2 * testSize)
		c := d.call(mig.ID)
		c.DstAttachmentID = mig.DstAttachmentID
		_, _, err = d.manager().Complete(context.Background(), c)
		if api.CodeOf(err) != api.CodeSizeMismatch || !strings.Contains(err.Error(), fmt.Sprintf("from %d to %d bytes", testSize, 2*testSize)) ||
			!strings.Contains(err.Error(), "migration cancel "+mig.ID) {
			t.Errorf("complete says %v, want the sizes and the way out", err)
		}
	})
}
