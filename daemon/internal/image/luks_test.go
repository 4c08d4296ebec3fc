// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

func TestAPassphraseThatLibvirtDoesNotGiveIsRefusedUnlessLibvirtIsAway(t *testing.T) {
	container := hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/c", LUKSSecret: "2f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"}
	gives := func(value string, err error) image.Storage {
		return image.Storage{Secret: func(context.Context, string) ([]byte, error) { return []byte(value), err }}
	}
	if err := gives("key", nil).CheckSecret(t.Context(), container); err != nil {
		t.Errorf("a passphrase: %v", err)
	}
	for what, s := range map[string]image.Storage{"private": gives("", errors.New("private")), "no such secret": gives("", hv.ErrNotFound), "empty": gives("", nil)} {
		// hv.ErrNotFound would mean that a domain is gone.
		if err := s.CheckSecret(t.Context(), container); api.CodeOf(err) != api.CodeStateForbidden || errors.Is(err, hv.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := gives("", hv.ErrUnavailable).CheckSecret(t.Context(), container); !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("libvirt is away: %v", err)
	}
	container.LUKSSecret = ""
	if err := (image.Storage{}).CheckSecret(t.Context(), container); err != nil {
		t.Errorf("what is not encrypted: %v", err)
	}
}

func TestWhatIsNoContainerHasNoPayload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raw")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := image.Storage{}.PayloadBytes(t.Context(), hv.Image{Format: "raw", Path: path, LUKSSecret: "2f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"})
	if api.CodeOf(err) != api.CodeUnsupportedDisk {
		t.Errorf("got %v", err)
	}
}
