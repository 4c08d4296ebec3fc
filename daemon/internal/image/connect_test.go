// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/internal/api"
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

// The guest must read another host's writes: here these go below a loop device with the old content
// in memory.
func TestAConnectedDeviceReadsWhatIsOnIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk")
	old, now := bytes.Repeat([]byte{1}, 1<<20), bytes.Repeat([]byte{2}, 1<<20)
	if err := os.WriteFile(file, old, 0o600); err != nil {
		t.Fatal(err)
	}
	device := loopDevice(t, file)
	read := func() byte {
		content, err := os.ReadFile(device)
		if err != nil {
			t.Fatal(err)
		}
		return content[0]
	}
	// Kept open, because the kernel drops the pages at the last close.
	held, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	read()
	if err := os.WriteFile(file, now, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != 1 {
		t.Fatalf("read %d: the old content was not in memory, so this proves nothing", got)
	}
	if err := (image.Storage{}).Connect(t.Context(), device); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != 2 {
		t.Errorf("read %d, which is no longer on the device", got)
	}
	if err := (image.Storage{}).Disconnect(t.Context(), device); err != nil {
		t.Error(err)
	}
}

func TestALinkToNothingIsNoPlaceForAnImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "link.raw")
	if err := os.Symlink("/nowhere/x.raw", path); err != nil {
		t.Fatal(err)
	}
	_, err := image.Storage{}.Inspect(t.Context(), api.Location{Path: path, Format: api.FormatRaw})
	if api.CodeOf(err) != api.CodeInvalidArgument || !strings.Contains(err.Error(), "/nowhere/x.raw") {
		t.Errorf("got %v, want invalid_argument that says where it leads", err)
	}
}

// TestADeviceThatCannotBeOpenedIsRefused: it is no internal error.
func TestADeviceThatCannotBeOpenedIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(240, 99))); err != nil {
		t.Skipf("device nodes cannot be made here: %v", err)
	}
	storage := image.Storage{Files: openfile.Anywhere()}
	_, err := storage.Inspect(t.Context(), api.Location{Path: path, Format: api.FormatRaw})
	if api.CodeOf(err) != api.CodeUnsupportedDisk || !strings.Contains(err.Error(), path+" cannot be opened") {
		t.Errorf("inspect: got %v, want unsupported_disk", err)
	}
	var lost *image.NotStoredError
	if err := storage.Disconnect(t.Context(), path); !errors.As(err, &lost) {
		t.Errorf("disconnect: got %v, want that what was written may not be stored", err)
	}
	if _, err = storage.InUse(t.Context(), path, nil); api.CodeOf(err) != api.CodeUnsupportedDisk {
		t.Errorf("in use: got %v, want unsupported_disk", err)
	}
}
