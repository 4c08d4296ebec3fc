// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestGrowAddsZerosAndKeepsWhatIsThere(t *testing.T) {
	for _, format := range []string{FormatRaw, FormatQCOW2} {
		t.Run(format, func(t *testing.T) {
			const before, after = 1 << 20, 3<<20 + 512
			img := Image{Path: filepath.Join(t.TempDir(), "image"), Format: format}
			must(t, Create(t.Context(), img, before, NewFile{}))
			content := bytes.Repeat([]byte("data"), 1024)
			if format == FormatRaw {
				must(t, os.WriteFile(img.Path, append(content, make([]byte, before-len(content))...), 0o600))
			}
			for range 2 { // the second time it has that size
				must(t, Grow(t.Context(), img, after))
				if size, err := VirtualSize(t.Context(), img); err != nil || size != after {
					t.Fatalf("it has %d bytes (%v), want %d", size, err, after)
				}
			}
			if allocated, err := AllocatedBytes(img.Path); err != nil || allocated > before+1<<20 {
				t.Errorf("it takes %d bytes (%v): what was added must take none", allocated, err)
			}
			if now, err := os.ReadFile(img.Path); format == FormatRaw && (err != nil || !bytes.Equal(now, append(content, make([]byte, after-len(content))...))) {
				t.Errorf("its content has changed (%v)", err)
			}
			var size *SizeError
			if err := Grow(t.Context(), img, before); !errors.As(err, &size) || size.Bytes != after {
				t.Errorf("to make it smaller is %v, want a refusal that names %d", err, after)
			}
		})
	}
}

func TestGrowTouchesNothingButTheFileItself(t *testing.T) {
	dir := t.TempDir()
	file := Image{Path: filepath.Join(dir, "file"), Format: FormatRaw}
	must(t, Create(t.Context(), file, 512, NewFile{}))
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(file.Path, link))
	overlay := filepath.Join(dir, "overlay")
	must(t, CreateOverlay(t.Context(), overlay, file, 512, NewFile{}))
	for name, img := range map[string]Image{
		"a link": {Path: link, Format: FormatRaw}, "a directory": {Path: dir, Format: FormatRaw}, "a device": {Path: "/dev/null", Format: FormatRaw},
		"no qcow2": {Path: file.Path, Format: FormatQCOW2}, "an overlay": {Path: overlay, Format: FormatQCOW2},
	} {
		if err := Grow(t.Context(), img, 1024); err == nil {
			t.Errorf("%s was made larger", name)
		}
	}
	if size, err := VirtualSize(t.Context(), file); err != nil || size != 512 {
		t.Errorf("the file has %d bytes (%v)", size, err)
	}
	if err := Grow(t.Context(), Image{Path: filepath.Join(dir, "none"), Format: FormatRaw}, 1024); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there is %v", err)
	}
}

func TestABlockDeviceIsNotGrown(t *testing.T) {
	device := loopDevice(t, newImage(t, "loop", FormatRaw))
	var refused *ImageError
	if err := Grow(t.Context(), device, 2*overlayTestBytes); !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
