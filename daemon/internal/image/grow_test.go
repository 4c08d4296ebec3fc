// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func TestARefusalToGrowSaysWhy(t *testing.T) {
	dir := t.TempDir()
	img := hv.Image{Path: filepath.Join(dir, "image"), Format: "raw"}
	if err := (Storage{}).Create(t.Context(), img, 1024, NewFile{}); err != nil {
		t.Fatal(err)
	}
	link := hv.Image{Path: filepath.Join(dir, "link"), Format: "raw"}
	if err := os.Symlink(img.Path, link.Path); err != nil {
		t.Fatal(err)
	}
	for want, err := range map[api.Code]error{
		api.CodeSizeMismatch:    Storage{}.Grow(t.Context(), img, 512),
		api.CodeUnsupportedDisk: Storage{}.Grow(t.Context(), link, 2048),
	} {
		if api.CodeOf(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := (Storage{}).Grow(t.Context(), hv.Image{Path: filepath.Join(dir, "none"), Format: "raw"}, 512); !errors.Is(err, ErrAbsent) {
		t.Errorf("nothing there is %v", err)
	}
}

// TestAnImageThatQEMUHasOpenIsInUse: two writers would destroy a qcow2 image.
func TestAnImageThatQEMUHasOpenIsInUse(t *testing.T) {
	img := hv.Image{Path: filepath.Join(t.TempDir(), "image"), Format: "qcow2"}
	if err := (Storage{}).Create(t.Context(), img, 1<<20, NewFile{}); err != nil {
		t.Fatal(err)
	}
	opensInQEMU(t, "-f", "qcow2", img.Path)
	if err := (Storage{}).Grow(t.Context(), img, 2<<20); !errors.Is(err, hv.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}

// TestAPathSaysNothingAboutLocks: qemu-img's messages contain the image's path.
func TestAPathSaysNothingAboutLocks(t *testing.T) {
	img := hv.Image{Path: filepath.Join(t.TempDir(), "lock"), Format: "qcow2"}
	if err := (Storage{}).Create(t.Context(), img, 1<<20, NewFile{}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(img.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const refcountOrder = 96 // of the header: an invalid value that only QEMU checks
	_, err = f.WriteAt([]byte{0, 0, 0, 7}, refcountOrder)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	err = Storage{}.Grow(t.Context(), img, 2<<20)
	if err == nil || !strings.Contains(err.Error(), img.Path) || errors.Is(err, hv.ErrInUse) {
		t.Errorf("an image that QEMU does not open is %v", err)
	}
}
