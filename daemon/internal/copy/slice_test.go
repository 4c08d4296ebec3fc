// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// TestACopyToTheBeginningOfALargerImageLeavesTheRest, between all kinds of images; a copy from
// there does not read the rest.
func TestACopyToTheBeginningOfALargerImageLeavesTheRest(t *testing.T) {
	const size = 8*miB + 512
	larger := func(image copy.Image) copy.Image {
		fill(t, image, [2]int64{0, image.SizeBytes})
		return copy.Image{Path: image.Path, Format: image.Format, SizeBytes: size, Slice: true}
	}
	src := raw(t, "src", size, [2]int64{0, miB}, [2]int64{4*miB + 65536, 70000}, [2]int64{8 * miB, 512})
	for name, dst := range map[string]copy.Image{
		"file":   larger(raw(t, "dst", size+miB)),
		"device": larger(loopDevice(t, size+miB)),
		"export": larger(raw(t, "served", size+miB)),
	} {
		t.Run(name, func(t *testing.T) {
			whole := copy.Image{Path: dst.Path, Format: dst.Format, SizeBytes: size + miB}
			if name == "export" {
				dst, _ = served(t, dst)
			}
			rest := string(read(t, whole)[size:])
			middle, back := qcow2(t, "middle", size), raw(t, "back", size)
			for _, step := range []copy.Spec{{Src: src, Dst: dst}, {Src: dst, Dst: middle}, {Src: middle, Dst: dst}, {Src: dst, Dst: back}} {
				step.Verify = true
				if result := mustCopy(t, step); !result.Verified || result.BytesTotal != size {
					t.Errorf("%s to %s: %+v", step.Src.Path, step.Dst.Path, result)
				}
				if string(read(t, whole)[size:]) != rest {
					t.Fatalf("%s to %s wrote behind the volume", step.Src.Path, step.Dst.Path)
				}
			}
			assertEqual(t, src, back)
			if err := copy.Compare(t.Context(), copy.Spec{Src: dst, Dst: src}); err != nil {
				t.Errorf("compare: %v", err)
			}
		})
	}
}

func TestALinkedCloneIsCopiedToTheBeginningOfALargerImage(t *testing.T) {
	const size = 2 * miB
	base := raw(t, "base", size, [2]int64{0, miB})
	clone := qcow2(t, "clone", size)
	rebase := exec.CommandContext(t.Context(), "qemu-img", "rebase", "-u", "-f", "qcow2", "-b", base.Path, "-F", "raw", clone.Path)
	if out, err := rebase.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	clone.Backing = &qemuimg.Image{Path: base.Path, Format: base.Format}
	whole := raw(t, "dst", size+miB, [2]int64{0, size + miB})
	rest := string(read(t, whole)[size:])
	dst := copy.Image{Path: whole.Path, Format: whole.Format, SizeBytes: size, Slice: true}
	if result := mustCopy(t, copy.Spec{Src: clone, Dst: dst, Verify: true}); !result.Verified || result.BytesTotal != size {
		t.Errorf("%+v", result)
	}
	assertEqual(t, base, copy.Image{Path: whole.Path, Format: whole.Format, SizeBytes: size})
	if string(read(t, whole)[size:]) != rest {
		t.Error("the copy wrote behind the volume")
	}
}

// TestABeginningOfWhatIsSmallerIsRefusedUntouched, as target of a copy between files and of a copy
// by qemu-img.
func TestABeginningOfWhatIsSmallerIsRefusedUntouched(t *testing.T) {
	const size = 2 * miB
	for name, src := range map[string]copy.Image{"raw": raw(t, "src", size), "qcow2": qcow2(t, "src.qcow2", size)} {
		t.Run(name, func(t *testing.T) {
			small := raw(t, "small", size-512, [2]int64{0, size - 512})
			before := string(read(t, small))
			export, _ := served(t, small)
			for _, dst := range []copy.Image{small, export} {
				_, err := copy.Copy(t.Context(), copy.Spec{Src: src, Dst: copy.Image{Path: dst.Path, Format: dst.Format, SizeBytes: size, Slice: true}})
				var refused *copy.SizeError
				if !errors.As(err, &refused) {
					t.Errorf("got %v, want a SizeError", err)
				}
				if string(read(t, small)) != before {
					t.Error("it was written to")
				}
			}
		})
	}
}
