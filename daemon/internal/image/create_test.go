// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// TestTheFingerprintOfANewImageIsKnownBeforeItIsAtItsPath, and does not change there.
func TestTheFingerprintOfANewImageIsKnownBeforeItIsAtItsPath(t *testing.T) {
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image")
			var told string
			err := Storage{}.Create(t.Context(), hv.Image{Path: path, Format: format}, 1<<20, NewFile{Whole: func(fingerprint string) error {
				told = fingerprint
				_, err := os.Stat(path)
				if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("it is at its path already (%v)", err)
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			now, err := Storage{}.Fingerprint(t.Context(), path)
			if err != nil || told == "" || now != told {
				t.Errorf("the fingerprint is %q (%v), want %q", now, err, told)
			}
		})
	}
}

// TestAnImageWhoseFingerprintCannotBeKeptIsNotMade: its owner could not be determined later.
func TestAnImageWhoseFingerprintCannotBeKeptIsNotMade(t *testing.T) {
	dir, full := t.TempDir(), errors.New("the journal is full")
	err := Storage{}.Create(t.Context(), hv.Image{Path: filepath.Join(dir, "image"), Format: "raw"}, 1<<20, NewFile{Whole: func(string) error { return full }})
	if !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the directory has %v (%v)", left, err)
	}
}
