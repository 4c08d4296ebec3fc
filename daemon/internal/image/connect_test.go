// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/image"
)

func TestAFileIsConnectedAndDisconnectedAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vol.raw")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (image.Storage{}).Connect(t.Context(), path); err != nil {
		t.Error(err)
	}
	if err := (image.Storage{}).Disconnect(t.Context(), path); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhatIsNotThereCannotBeConnectedAndNeedsNoDisconnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	if err := (image.Storage{}).Connect(t.Context(), path); !errors.Is(err, image.ErrAbsent) {
		t.Errorf("connect: %v", err)
	}
	if err := (image.Storage{}).Disconnect(t.Context(), path); err != nil {
		t.Errorf("disconnect: %v", err)
	}
}
