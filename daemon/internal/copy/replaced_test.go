// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"errors"
	"os"
	"testing"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// The copier continues with the file that it has open; the guest gets the file at the path.
func TestADstThatIsUnlinkedOrReplacedInTheCopyIsNoCopy(t *testing.T) {
	for _, format := range []string{qemuimg.FormatRaw, qemuimg.FormatQCOW2} {
		for _, replaced := range []bool{false, true} {
			src, dst := raw(t, "src", 4*miB, [2]int64{0, miB}), raw(t, "dst", 4*miB)
			if format != qemuimg.FormatRaw {
				dst.Format = format
				if err := errors.Join(os.Remove(dst.Path), qemuimg.Create(t.Context(), qemuimg.Image{Path: dst.Path, Format: format}, 4*miB, qemuimg.NewFile{})); err != nil {
					t.Fatal(err)
				}
			}
			gone := false
			result, err := copy.Copy(t.Context(), copy.Spec{Src: src, Dst: dst, Verify: true, Progress: func(p copy.Progress) {
				if gone || p.Phase != copy.PhaseVerify {
					return
				}
				gone = true
				if err := os.Rename(dst.Path, dst.Path+".away"); err != nil {
					t.Error(err)
				}
				if replaced {
					text, err := os.ReadFile(dst.Path + ".away") // even one with the same content
					if err = errors.Join(err, os.WriteFile(dst.Path, text, 0o600)); err != nil {
						t.Error(err)
					}
				}
			}})
			if !gone {
				t.Fatalf("%s: no verification was seen", format)
			}
			if err == nil || result.Verified {
				t.Errorf("%s, replaced %t: the copy ended with %v, verified %t", format, replaced, err, result.Verified)
			}
		}
	}
}
