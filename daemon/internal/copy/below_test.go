// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// An overlay and its backing image read alike unless the overlay has a different cluster of its
// own. A fold would write that cluster.
func TestAnOverlayIsComparedWithTheImageThatItIsOver(t *testing.T) {
	const size, written, read = 8 * miB, "write -P 7 1M 64k", "write -P 9 3M 64k"
	larger := raw(t, "larger", size+miB, [2]int64{0, 2 * miB}, [2]int64{size, miB})
	for name, below := range map[string]copy.Image{
		"a beginning":    {Path: larger.Path, Format: larger.Format, SizeBytes: size, Slice: true},
		"raw":            raw(t, "src", size, [2]int64{0, 2 * miB}),
		"a linked clone": clone(t, "cluster_size=64k", size, 5),
	} {
		t.Run(name, func(t *testing.T) {
			is := qemuimg.Image{Path: below.Path, Format: below.Format, Backing: below.Backing}
			if below.Slice {
				is.SliceBytes = size
			}
			overlay := qemuimg.Image{Path: filepath.Join(t.TempDir(), "overlay"), Format: qemuimg.FormatQCOW2, Backing: &is}
			create(t, overlay, "cluster_size=64k,extended_l2=on", size)
			does := func(image qemuimg.Image, what string) {
				t.Helper()
				command(t, "qemu-io", "-f", image.Format, "-c", what, image.Path)
			}
			compared := func() error {
				return copy.Compare(t.Context(), copy.Spec{
					Src: copy.Image{Path: overlay.Path, Format: overlay.Format, Backing: overlay.Backing, SizeBytes: size}, Dst: below,
				})
			}
			if err := compared(); err != nil {
				t.Errorf("an empty overlay: %v", err)
			}
			does(overlay, written)
			var mismatch *copy.MismatchError
			if err := compared(); !errors.As(err, &mismatch) || mismatch.Offset != miB {
				t.Errorf("of what the overlay has alone: %v", err)
			}
			does(is, written)
			does(is, read) // the overlay lets it through
			if err := compared(); err != nil {
				t.Errorf("of what both have: %v", err)
			}
		})
	}
}

func TestAnImageIsNotComparedWithItself(t *testing.T) {
	src := raw(t, "src", miB)
	linked := src
	linked.Path = filepath.Join(t.TempDir(), "dst")
	if err := os.Link(src.Path, linked.Path); err != nil {
		t.Fatal(err)
	}
	if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: linked}); !errors.Is(err, copy.ErrSameImage) {
		t.Errorf("got %v, want %v", err, copy.ErrSameImage)
	}
}
