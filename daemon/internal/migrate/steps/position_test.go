// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// libvirt makes QEMU close the old images of a pivot from the top, and may die in between: a guest
// without its overlay open is on dst, and continues there.
func TestAGuestThatHasClosedItsOverlayBehindAPivotIsOnDst(t *testing.T) {
	clone := Spec{Method: MethodOverlay, Overlay: "/overlays/o.qcow2", Src: api.Location{Path: "/old/c.qcow2", Backing: "/base.raw"}, Dst: api.Location{Path: "/new/c.qcow2", Backing: "/base.raw"}}
	whole := clone
	whole.Dst.Backing = ""
	for _, c := range []struct {
		open openImages
		of   *Spec
		want Position
	}{
		{openImages{src: true, dst: true}, &clone, OnDst},
		{openImages{src: true, overlay: true, dst: true}, &clone, Foreign},
		{openImages{src: true, overlay: true}, &clone, OnOverlay},
		{openImages{src: true, dst: true}, &whole, Foreign}, // perhaps QEMU was not asked for images at addresses
	} {
		if at := c.open.position(c.of); at != c.want {
			t.Errorf("a guest of which %s is %s, want %s", &c.open, at, c.want)
		}
	}
}
