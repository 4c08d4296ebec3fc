// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/internal/api"
)

// TestAnOverlayIsNotReachedByALinkBelowTheSharedOverlayDirectory: with overlay_dir_shared the root
// user of another host can replace the directory of this host's overlays there.
func TestAnOverlayIsNotReachedByALinkBelowTheSharedOverlayDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	base, real := filepath.Join(dir, "base.raw"), filepath.Join(dir, "elsewhere/m.qcow2")
	if err := errors.Join(
		os.MkdirAll(dir+"/mounted", 0o700), os.Mkdir(dir+"/elsewhere", 0o700), os.Symlink(dir+"/mounted", dir+"/overlays"),
		os.Symlink(dir+"/elsewhere", dir+"/mounted/this-host"), os.WriteFile(base, make([]byte, 1<<20), 0o600), hosttest.WriteClone(real, base),
	); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlays/this-host/m.qcow2")
	s := image.Storage{Files: openfile.Files{Places: location.Rules{Own: []string{dir + "/overlays"}, AllowedPaths: []string{dir}}}}
	under := hv.Image{Type: hv.SourceFile, Path: base, Format: "raw"}
	for what, do := range map[string]func() error{
		"made": func() error {
			return s.CreateOverlay(t.Context(), filepath.Dir(overlay)+"/new.qcow2", under, 1<<20, nil)
		},
		"looked at": func() error { _, err := s.CheckOverlay(t.Context(), overlay, under, 1<<20); return err },
		"folded":    func() error { return s.Fold(t.Context(), overlay, []hv.Image{under}) },
	} {
		if err := do(); api.CodeOf(err) != api.CodePermissionDenied {
			t.Errorf("an overlay is %s by a link below the directory: %v", what, err)
		}
	}
	if made, err := os.ReadDir(dir + "/elsewhere"); err != nil || len(made) != 1 {
		t.Errorf("the directory behind the link has %v, %v", made, err)
	}
}
