// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// TestAnOverlayIsFoldedIntoTheBeginningOfALargerImage, and Inspect reports the whole image.
func TestAnOverlayIsFoldedIntoTheBeginningOfALargerImage(t *testing.T) {
	const size, whole = 1 << 20, 2<<20 + 512
	for at, address := range map[string]func(*testing.T, string) string{
		"a file": func(_ *testing.T, file string) string { return file },
		"an export": func(t *testing.T, file string) string {
			t.Helper()
			if _, err := exec.LookPath("qemu-nbd"); err != nil {
				t.Skip("SKIPPED: no qemu-nbd: ", err)
			}
			export, err := lab.Serve(t.Context(), file, "web", file+".sock")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = export.Close() })
			return export.URI()
		},
	} {
		t.Run(at, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "larger.raw")
			somebodys := bytes.Repeat([]byte("somebody's data."), whole/16)
			if err := os.WriteFile(file, somebodys, 0o600); err != nil {
				t.Fatal(err)
			}
			l := api.Location{Path: address(t, file), Format: api.FormatRaw, SizeBytes: size, ImageBytes: whole}
			overlay := filepath.Join(dir, "overlay")
			if err := (Storage{}).CreateOverlay(t.Context(), overlay, location.Image(l, false), size, nil); err != nil {
				t.Fatal(err)
			}
			for _, write := range []string{"write -z 0 64k", "write -P 7 1020k 4k"} {
				if out, err := exec.CommandContext(t.Context(), "qemu-io", "-f", "qcow2", "-c", write, overlay).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			if err := (Storage{}).Fold(t.Context(), overlay, []hv.Image{location.Image(l, false)}); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := bytes.Clone(somebodys)
			clear(want[:64<<10])
			copy(want[1020<<10:], bytes.Repeat([]byte{7}, 4<<10))
			if !bytes.Equal(got, want) {
				t.Error("the fold left something else than the overlay over what was there")
			}
			if info, err := (Storage{}).Inspect(t.Context(), l); err != nil || info.SizeBytes != whole {
				t.Errorf("the image has %d bytes (%v), want all %d", info.SizeBytes, err, int64(whole))
			}
		})
	}
}
