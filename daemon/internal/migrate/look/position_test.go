// SPDX-License-Identifier: Apache-2.0

package look

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// libvirt makes QEMU close the old images of a pivot from the top, and may die in between: a guest
// without its overlay open is on dst, and continues there.
func TestAGuestThatHasClosedItsOverlayBehindAPivotIsOnDst(t *testing.T) {
	clone := move.Spec{Method: move.MethodOverlay, Overlay: "/overlays/o.qcow2", Src: api.Location{Path: "/old/c.qcow2", Backing: "/base.raw"}, Dst: api.Location{Path: "/new/c.qcow2", Backing: "/base.raw"}}
	whole := clone
	whole.Dst.Backing = ""
	for _, c := range []struct {
		open OpenImages
		of   *move.Spec
		want move.Position
	}{
		{OpenImages{Src: true, Dst: true}, &clone, move.OnDst},
		{OpenImages{Src: true, Overlay: true, Dst: true}, &clone, move.Foreign},
		{OpenImages{Src: true, Overlay: true}, &clone, move.OnOverlay},
		{OpenImages{Src: true, Dst: true}, &whole, move.Foreign}, // perhaps QEMU was not asked for images at addresses
	} {
		if at := c.open.Position(c.of); at != c.want {
			t.Errorf("a guest of which %s is %s, want %s", &c.open, at, c.want)
		}
	}
}
