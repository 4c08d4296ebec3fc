// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// defineOn defines a domain that is off and names an image.
func (w *world) defineOn(t *testing.T, path string) {
	t.Helper()
	must(t, w.Define(hv.Domain{ID: testSrcAtt, Name: "other", Config: []hv.Disk{{
		Target: "vda", Bus: "virtio", Device: "disk", Terminated: true,
		Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}},
	}}}))
}

// TestNothingIsWrittenToADstThatSomebodyHasTakenSinceItWasMade: the copy, and the job of
// a mirror, look once more before their first byte.
func TestNothingIsWrittenToADstThatSomebodyHasTakenSinceItWasMade(t *testing.T) {
	for name, c := range map[string]struct {
		takes func(t *testing.T, w *world, path string)
		words string
	}{
		"a domain is defined on it": {func(t *testing.T, w *world, path string) { w.defineOn(t, path) }, "other"},
		"it is another file":        {func(t *testing.T, w *world, path string) { w.strange(t, path) }, "replaced"},
	} {
		for _, method := range []string{MethodOverlay, MethodMirror} {
			t.Run(name+", "+method, func(t *testing.T) {
				w := newWorld(t, hv.StateRunning)
				s := testSpec(method)
				must(t, w.CreateImage(dstPath, hvtest.Raw, testSize))
				fingerprint, err := w.images.Fingerprint(t.Context(), dstPath)
				must(t, err)
				m := newEnv(w.ports(), fakeHistory{DstNote{Ours: true, Print: fingerprint}}, nil, func(string) {}, slog.New(slog.DiscardHandler))
				if got, err := m.mayWriteDst(t.Context(), &s); err != nil || got != fingerprint {
					t.Fatalf("before that: %q, %v", got, err)
				}
				c.takes(t, w, dstPath)
				if method == MethodMirror {
					err = m.mayMirrorToDst(t.Context(), &s)
				} else {
					_, err = m.mayWriteDst(t.Context(), &s)
				}
				if api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), c.words) {
					t.Errorf("got %v, want dst_in_use that says %q", err, c.words)
				}
			})
		}
	}
}

// TestAMoveEndsWhereItsDstIsReplacedBeforeTheSwitch: what was copied is gone with the file
// that it was in.
func TestAMoveEndsWhereItsDstIsReplacedBeforeTheSwitch(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCopied)
				d.world.strange(t, mig.Dst.Path)
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

// TestTheCopierWritesOnlyToTheFileThatWasMade, whatever its path names when it is opened.
func TestTheCopierWritesOnlyToTheFileThatWasMade(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.raw"), filepath.Join(dir, "dst.raw")
	must(t, os.WriteFile(src, make([]byte, 1<<20), 0o600))
	must(t, os.WriteFile(dst, []byte{}, 0o600))
	fingerprint, err := location.Fingerprint(dst)
	must(t, err)
	must(t, os.Rename(dst, dst+".away"))
	theirs := strings.Repeat("x", 1<<20)
	must(t, os.WriteFile(dst, []byte(theirs), 0o600))
	c := NewCopier(t.TempDir(), slog.New(slog.DiscardHandler))
	_, err = c.Copy(t.Context(), CopyRequest{
		Key: "k", Src: hv.Image{Path: src, Format: hvtest.Raw}, Dst: hv.Image{Path: dst, Format: hvtest.Raw}, SizeBytes: 1 << 20,
		DstPrint: fingerprint, BandwidthBps: func() int64 { return 0 }, Progress: func(Progress) {},
	})
	if api.CodeOf(err) != api.CodeDstInUse {
		t.Errorf("got %v, want dst_in_use", err)
	}
	if text, err := os.ReadFile(dst); err != nil || string(text) != theirs {
		t.Errorf("the file of somebody else was written (%v)", err)
	}
}
