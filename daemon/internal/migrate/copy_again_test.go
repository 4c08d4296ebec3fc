// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// The storage has lost what the cursor says is there, further back than a copy that goes
// on looks: the copy after the one that finds it begins anew, and mends it.
func TestACopyThatIsNotEqualIsMendedByCopyingAgain(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	const size = 320 << 20 // sparse
	for path, text := range map[string]string{src: "what the guest wrote", dst: ""} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		must(t, os.Truncate(path, size))
	}
	must(t, os.Mkdir(filepath.Join(dir, "cursors"), 0o700))
	c := NewCopier(filepath.Join(dir, "cursors"), slog.New(slog.DiscardHandler))
	copyOnce := func() error {
		_, err := c.Copy(t.Context(), CopyRequest{
			Key: "k", Src: rawFile(src), Dst: rawFile(dst), SizeBytes: size, Verify: true,
			BandwidthBps: func() int64 { return 0 }, Progress: func(Progress) {},
		})
		return err
	}
	must(t, copyOnce())
	f, err := os.OpenFile(dst, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("something else"), 0)
	must(t, err)
	must(t, f.Close())
	if err := copyOnce(); api.CodeOf(err) != api.CodeCopyMismatch {
		t.Fatalf("got %v, want copy_mismatch", err)
	}
	must(t, copyOnce())
	must(t, c.Compare(t.Context(), rawFile(src), rawFile(dst), size, func(Progress) {}))
}

func rawFile(path string) hv.Image {
	return hv.Image{Type: hv.SourceFile, Format: "raw", Path: path}
}
