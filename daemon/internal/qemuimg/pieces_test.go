// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/openfile"
)

func openPieces(path string) (*Overlay, error) {
	return OpenOverlay(path, openfile.Files{}, overlayTestBytes, func(*os.File) error { return nil })
}

// The guest's data is in its overlay, and QEMU has written the tables. Impossible tables are
// refused.
func TestTablesThatNoOverlayOfOursHasAreRefused(t *testing.T) {
	base := newImage(t, "base.raw", FormatRaw)
	for name, spoil := range map[string]func(entry []byte){
		"compressed":         func(e []byte) { e[0] |= 1 << 6 },
		"off a cluster":      func(e []byte) { e[6] |= 2 },
		"data and zeros":     func(e []byte) { copy(e[8:12], e[12:16]) },
		"data of no cluster": func(e []byte) { clear(e[:8]) },
	} {
		path := filepath.Join(t.TempDir(), "overlay.qcow2")
		if err := CreateOverlay(t.Context(), path, base, overlayTestBytes, NewFile{}); err != nil {
			t.Fatal(err)
		}
		guestWrites(t, Image{Path: path, Format: FormatQCOW2}, "write -P 1 0 64k")
		overlay, err := openPieces(path)
		if err != nil {
			t.Fatal(err)
		}
		table := overlay.table(0)
		overlay.Close()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		entry := make([]byte, 16)
		if _, err := f.ReadAt(entry, table); err != nil || binary.BigEndian.Uint64(entry) == 0 {
			t.Fatalf("there is no entry to spoil: %v", err)
		}
		spoil(entry)
		if _, err := f.WriteAt(entry, table); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if overlay, err = openPieces(path); err != nil {
			t.Fatal(err)
		}
		var bad *ImageError
		if pieces, err := overlay.Pieces(0, 1<<20); !errors.As(err, &bad) {
			t.Errorf("%s: %+v, %v", name, pieces, err)
		}
		overlay.Close()
	}
}

func TestAnOverlayOverAnAddressIsMadeAndKnownByIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "overlay.qcow2")
	over := Image{Path: "nbd+unix:///web?socket=/run/nbd.sock", Format: FormatRaw}
	for range 2 { // the second time it exists, and is empty
		if err := CreateOverlay(t.Context(), path, over, overlayTestBytes, NewFile{}); err != nil {
			t.Fatal(err)
		}
	}
	if empty, err := CheckOverlay(path, over, overlayTestBytes); !empty || err != nil {
		t.Errorf("empty %v, %v", empty, err)
	}
	other := over
	other.Path = "nbd+unix:///other?socket=/run/nbd.sock"
	if _, err := CheckOverlay(path, other, overlayTestBytes); err == nil {
		t.Error("it is taken for one over another export")
	}
	for _, bad := range []Image{{Path: over.Path, Format: FormatQCOW2}, {Path: "nbd+unix:///a b?socket=/run/nbd.sock", Format: FormatRaw}} {
		if err := CreateOverlay(t.Context(), path+".2", bad, overlayTestBytes, NewFile{}); err == nil {
			t.Errorf("made over %s", bad)
		}
	}
}
