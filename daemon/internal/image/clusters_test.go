// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"context"
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

func TestAHostWithoutClustersUsesNoRBDImage(t *testing.T) {
	const path = "rbd://5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web"
	const fingerprint = "rbd image 1 at " + path
	s, ctx := image.Storage{}, t.Context()
	for name, call := range map[string]func() error{
		"Inspect": func() error {
			_, err := s.Inspect(ctx, api.Location{Path: path, Format: api.FormatRaw})
			return err
		},
		"Fingerprint": func() error { _, err := s.Fingerprint(ctx, path); return err },
		"Stamp":       func() error { _, err := s.Stamp(ctx, path); return err },
		"InUse":       func() error { _, err := s.InUse(ctx, path, nil); return err },
		"Create": func() error {
			about := image.NewFile{Temporary: "new", Whole: func(string) error { return nil }}
			return s.Create(ctx, hv.Image{Type: hv.SourceNetwork, Format: "raw", Path: path}, 1<<20, about)
		},
		"RemoveMade":     func() error { return s.RemoveMade(ctx, path, fingerprint) },
		"Fence":          func() error { return s.Fence(ctx, path) },
		"Snapshot":       func() error { _, err := s.Snapshot(ctx, path, "volferry-1", true); return err },
		"MakeSnapshot":   func() error { return s.MakeSnapshot(ctx, path, fingerprint, "volferry-1") },
		"RemoveSnapshot": func() error { return s.RemoveSnapshot(ctx, path, fingerprint, "volferry-1", 4) },
	} {
		if err := call(); err == nil || errors.Is(err, image.ErrAbsent) {
			t.Errorf("%s: %v, want an error that does not mean an absent image", name, err)
		}
	}
}

// A server that is down and an export that is away look the same.
func TestAnExportWithoutItsSocketIsNotAbsent(t *testing.T) {
	path := "nbd+unix:///web?socket=" + t.TempDir() + "/s"
	for name, call := range map[string]func(context.Context) error{
		"Inspect": func(ctx context.Context) error {
			_, err := image.Storage{}.Inspect(ctx, api.Location{Path: path, Format: api.FormatRaw})
			return err
		},
		"Stamp": func(ctx context.Context) error { _, err := image.Storage{}.Stamp(ctx, path); return err },
		"Flush": func(ctx context.Context) error { return image.Storage{}.Flush(ctx, path) },
	} {
		if err := call(t.Context()); api.CodeOf(err) != api.CodeStateForbidden || errors.Is(err, image.ErrAbsent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
