// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// loopDevice makes a block device of a file.
func loopDevice(t *testing.T, file string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root for a loop device")
	}
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Skipf("SKIPPED: no loop device: %v", err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if err := exec.CommandContext(context.Background(), "losetup", "--detach", device).Run(); err != nil {
			t.Error(err)
		}
	})
	return device
}

// deviceOf makes a block device of this size.
func deviceOf(t *testing.T, sizeBytes int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "device")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, sizeBytes)); err != nil {
		t.Fatal(err)
	}
	return loopDevice(t, file)
}

func TestAnImageOnADeviceHasTheSizeOfItsHeaderAndFitsOrNot(t *testing.T) {
	const sizeBytes = 8 << 20
	full, err := image.Storage{}.FullBytes(t.Context(), sizeBytes)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		deviceBytes int64
		fits        bool
	}{"fits": {full, true}, "may outgrow it": {full - 512, false}} {
		t.Run(name, func(t *testing.T) {
			device := deviceOf(t, c.deviceBytes)
			if out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", device, fmt.Sprint(int64(sizeBytes))).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			l := api.Location{Path: device, Format: api.FormatQcow2}
			info, err := image.Storage{}.Inspect(t.Context(), l)
			if err != nil || info.SizeBytes != sizeBytes || !info.Block {
				t.Errorf("it is %+v, %v", info, err)
			}
			err = image.Storage{}.CheckFits(t.Context(), l, info)
			if fits := err == nil; fits != c.fits || !fits && (api.CodeOf(err) != api.CodeUnsupportedDisk || !strings.Contains(err.Error(), fmt.Sprintf("lvextend --size %db %s", full, device))) {
				t.Errorf("got %v", err)
			}
			raw := api.Location{Path: device, Format: api.FormatRaw}
			if info, err = (image.Storage{}).Inspect(t.Context(), raw); err != nil || info.SizeBytes != c.deviceBytes {
				t.Errorf("the device is %+v, %v", info, err)
			}
			if err := (image.Storage{}).CheckFits(t.Context(), raw, info); err != nil {
				t.Errorf("raw: %v", err)
			}
		})
	}
}

func TestAnImageIsMadeOnTheRightDeviceAlone(t *testing.T) {
	const sizeBytes = 8 << 20
	full, err := image.Storage{}.FullBytes(t.Context(), sizeBytes)
	if err != nil {
		t.Fatal(err)
	}
	device := deviceOf(t, full)
	is, err := image.Storage{}.Fingerprint(t.Context(), device)
	if err != nil {
		t.Fatal(err)
	}
	l := api.Location{Path: device, Format: api.FormatQcow2}
	var replaced *image.ReplacedError
	if err := (image.Storage{}).CreateOnDevice(t.Context(), device, sizeBytes, "device of somebody else"); !errors.As(err, &replaced) || replaced.Found != is {
		t.Errorf("another device: %v", err)
	}
	if err := (image.Storage{}).CreateOnDevice(t.Context(), device, sizeBytes+1<<20, is); api.CodeOf(err) != api.CodeSizeMismatch {
		t.Errorf("a larger image: %v", err)
	}
	if info, err := (image.Storage{}).Inspect(t.Context(), l); api.CodeOf(err) != api.CodeUnsupportedDisk || !info.Block {
		t.Errorf("it was written: %+v, %v", info, err)
	}
	if err := (image.Storage{}).CreateOnDevice(t.Context(), device, sizeBytes, is); err != nil {
		t.Fatal(err)
	}
	if blank, err := (image.Storage{}).Blank(t.Context(), l); err != nil || !blank {
		t.Errorf("a new image is blank: %v, %v", blank, err)
	}
}

func TestADeviceIsInspectedForItsVolumeOnlyIfItIsTheVolumes(t *testing.T) {
	device := deviceOf(t, 8<<20)
	l := api.Location{Path: device, Format: api.FormatRaw}
	info, err := image.Storage{}.Inspect(t.Context(), l)
	if err != nil || info.Identity == "" {
		t.Fatalf("it is %+v, %v", info, err)
	}
	l.Identity = info.Identity
	if again, err := (image.Storage{}).Inspect(t.Context(), l); err != nil || again != info {
		t.Errorf("it is %+v, %v, want %+v", again, err, info)
	}
	l.Path = deviceOf(t, 8<<20)
	_, err = image.Storage{}.Inspect(t.Context(), l)
	if refused := api.AsError(err); api.CodeOf(err) != api.CodeChainChanged || refused.Details["expected"] != info.Identity || !strings.Contains(refused.Message, "volume set VOLUME --identity") {
		t.Errorf("another device at the path: %v", err)
	}
	l.Path = filepath.Join(t.TempDir(), "file.raw")
	if err := errors.Join(os.WriteFile(l.Path, nil, 0o600), os.Truncate(l.Path, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err = (image.Storage{}).Inspect(t.Context(), l); api.CodeOf(err) != api.CodeChainChanged {
		t.Errorf("a file at the path: %v", err)
	}
}

func TestADeviceIsNotRemovedNorIsItsName(t *testing.T) {
	device := deviceOf(t, 1<<20)
	name := filepath.Join(t.TempDir(), "by-id")
	if err := os.Symlink(device, name); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{device, name} {
		if err := (image.Storage{}).Remove(t.Context(), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("it is gone: %v", err)
		}
	}
}

func TestADeviceHasNoRightsOfItsOwn(t *testing.T) {
	if r, err := (image.Storage{}).Rights(t.Context(), deviceOf(t, 1<<20)); r != nil || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := (image.Storage{}).Rights(t.Context(), "/no/such/image"); !errors.Is(err, image.ErrAbsent) {
		t.Errorf("%v, want ErrAbsent", err)
	}
}
