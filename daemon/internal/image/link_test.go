// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// TestALinkOrAPipeInThePlaceOfAnImageIsNotOpened by any call that reads an image or writes to it.
func TestALinkOrAPipeInThePlaceOfAnImageIsNotOpened(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("root's"), 0o600), os.Symlink(secret, dir+"/link"), unix.Mkfifo(dir+"/pipe", 0o600)); err != nil {
		t.Fatal(err)
	}
	s, ctx := image.Storage{}, t.Context()
	for _, path := range []string{dir + "/link", dir + "/pipe"} {
		l := api.Location{Path: path, Format: api.FormatRaw, SizeBytes: 512}
		img := hv.Image{Type: hv.SourceFile, Path: path, Format: "raw"}
		for call, do := range map[string]func() error{
			"Inspect":        func() error { _, err := s.Inspect(ctx, l); return err },
			"ReadBacking":    func() error { _, err := s.ReadBacking(ctx, path, api.FormatQcow2); return err },
			"Grow":           func() error { return s.Grow(ctx, img, 1<<20) },
			"Connect":        func() error { return s.Connect(ctx, path) },
			"Flush":          func() error { return s.Flush(ctx, path) },
			"Sync":           func() error { return s.Sync(ctx, path) },
			"Rights":         func() error { _, err := s.Rights(ctx, path); return err },
			"GiveRights":     func() error { _, err := s.GiveRights(ctx, path, &image.Rights{}); return err },
			"GiveBack":       func() error { _, err := s.GiveBack(ctx, path, &image.Rights{}); return err },
			"Mark":           func() error { return s.Mark(ctx, path, "x") },
			"Marked":         func() error { _, err := s.Marked(ctx, path, "x"); return err },
			"Blank":          func() error { _, err := s.Blank(ctx, l); return err },
			"FillFirstBlock": func() error { return s.FillFirstBlock(ctx, path) },
			"Written":        func() error { _, err := s.Written(ctx, path); return err },
			"MayOpen":        func() error { return s.MayOpen(hv.ProcessUser{UID: 64055, GID: 64055, Given: true}, path) },
			"RealPath":       func() error { _, err := s.RealPath(path); return err },
		} {
			if err := do(); err == nil || errors.Is(err, image.ErrAbsent) {
				t.Errorf("%s of %s: %v", call, filepath.Base(path), err)
			}
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "root's" {
		t.Errorf("the file behind the link is %q, %v", text, err)
	}
}
