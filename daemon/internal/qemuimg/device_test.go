// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// anyDevice accepts every device.
func anyDevice(*os.File) error { return nil }

// deviceOf makes a block device of this many nonzero bytes.
func deviceOf(t *testing.T, sizeBytes int64) Image {
	t.Helper()
	file := Image{Path: filepath.Join(t.TempDir(), "device"), Format: FormatRaw}
	if err := os.WriteFile(file.Path, bytes.Repeat([]byte("old "), int(sizeBytes/4)), 0o600); err != nil {
		t.Fatal(err)
	}
	device := loopDevice(t, file)
	device.Format = FormatQCOW2
	return device
}

// fullBytesForTest returns the necessary device size for an image of overlayTestBytes, in whole
// sectors.
func fullBytesForTest(t *testing.T) int64 {
	t.Helper()
	full, err := FullBytes(t.Context(), overlayTestBytes)
	if err != nil {
		t.Fatal(err)
	}
	if full%512 != 0 {
		t.Fatalf("an image takes %d bytes, which are no whole sectors", full)
	}
	return full
}

// A device of exactly the size of the full image holds all of it, in any order of writes.
func TestAnImageFitsOnTheSmallestDeviceThatItIsMadeOn(t *testing.T) {
	device := deviceOf(t, fullBytesForTest(t))
	if err := CreateOnDevice(t.Context(), device, overlayTestBytes, anyDevice); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, device), make([]byte, overlayTestBytes)) {
		t.Fatal("a new image does not read as zeros")
	}
	if empty, err := Empty(device); err != nil || !empty {
		t.Errorf("a new image is empty: %v, %v", empty, err)
	}
	var writes []string
	for mib := int64(overlayTestBytes>>20) - 1; mib >= 0; mib-- {
		writes = append(writes, fmt.Sprintf("write -P %d %dM 1M", mib%200+1, mib))
	}
	guestWrites(t, device, writes...)
	got := content(t, device)
	for mib := range int64(overlayTestBytes >> 20) {
		if got[mib<<20] != byte(mib%200+1) || got[(mib+1)<<20-1] != byte(mib%200+1) {
			t.Fatalf("MiB %d has other bytes than were written", mib)
		}
	}
	room, err := RoomOf(t.Context(), device)
	if err != nil || room.FullBytes != room.DeviceBytes {
		t.Errorf("the room is %+v, %v", room, err)
	}
	// A new image is empty again.
	if err := CreateOnDevice(t.Context(), device, overlayTestBytes, anyDevice); err != nil {
		t.Fatal(err)
	}
	if empty, err := Empty(device); err != nil || !empty {
		t.Errorf("an image that was made again is empty: %v, %v", empty, err)
	}
}

func TestNoImageIsMadeOnADeviceThatItMayOutgrow(t *testing.T) {
	full := fullBytesForTest(t)
	device := deviceOf(t, full-512)
	var room *RoomError
	if err := CreateOnDevice(t.Context(), device, overlayTestBytes, anyDevice); !errors.As(err, &room) || room.Room.FullBytes != full || room.Room.DeviceBytes != full-512 {
		t.Errorf("a device that is too small: %v", err)
	}
	assertOld(t, device)
}

func TestNoImageIsMadeOnAnotherDeviceOrOneThatSomebodyHas(t *testing.T) {
	device := deviceOf(t, fullBytesForTest(t))
	other := errors.New("it is another device")
	if err := CreateOnDevice(t.Context(), device, overlayTestBytes, func(*os.File) error { return other }); !errors.Is(err, other) {
		t.Errorf("another device: %v", err)
	}
	fd, err := unix.Open(device.Path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := CreateOnDevice(t.Context(), device, overlayTestBytes, anyDevice); !errors.Is(err, ErrBusy) {
		t.Errorf("a device that is mounted: %v", err)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	assertOld(t, device)
	file := newImage(t, "file", FormatRaw)
	var refused *ImageError
	if err := CreateOnDevice(t.Context(), file, overlayTestBytes, anyDevice); !errors.As(err, &refused) {
		t.Errorf("a file: %v", err)
	}
}

// assertOld checks that a device of deviceOf is unchanged.
func assertOld(t *testing.T, device Image) {
	t.Helper()
	got, err := os.ReadFile(device.Path)
	if err != nil || !bytes.Equal(got, bytes.Repeat([]byte("old "), len(got)/4)) {
		t.Errorf("the device was written (%v)", err)
	}
}

// The maximum size of an image depends on its layout.
func TestTheRoomOfAnImageIsThatOfItsLayout(t *testing.T) {
	const sizeBytes = 8 << 20
	for options, clusterBytes := range map[string]int64{
		"compat=1.1":  64 << 10,
		"compat=0.10": 64 << 10,
		"compat=1.1,cluster_size=16k,extended_l2=on":  16 << 10,
		"compat=1.1,cluster_size=4k,refcount_bits=64": 4 << 10,
		"compat=1.1,cluster_size=512,refcount_bits=1": 512,
		"compat=1.1,cluster_size=2M,refcount_bits=16": 2 << 20,
	} {
		t.Run(options, func(t *testing.T) {
			device := deviceOf(t, 3*sizeBytes)
			qemuImg(t, "create", "-q", "-f", "qcow2", "-o", options, device.Path, fmt.Sprint(int64(sizeBytes)))
			if has, err := ClusterBytes(device); err != nil || has != clusterBytes {
				t.Errorf("it has clusters of %d bytes, %v, want %d", has, err, clusterBytes)
			}
			room, err := RoomOf(t.Context(), device)
			if err != nil || room.DeviceBytes != 3*sizeBytes {
				t.Fatalf("the room is %+v, %v", room, err)
			}
			guestWrites(t, device, fmt.Sprintf("write -P 7 0 %d", sizeBytes))
			if end := endOf(t, device); end > room.FullBytes || end < room.FullBytes-2*clusterBytes {
				t.Errorf("the image has grown to %d bytes, and %d were said", end, room.FullBytes)
			}
		})
	}
}

// endOf returns the end of the image on a device, in bytes.
func endOf(t *testing.T, device Image) int64 {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "qemu-img", "check", "--output", "json", "-f", "qcow2", device.Path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var check struct {
		End int64 `json:"image-end-offset"`
	}
	if err := json.Unmarshal(out, &check); err != nil {
		t.Fatal(err)
	}
	return check.End
}

func TestAQcow2ImageOnADeviceIsServedAndFoldedInto(t *testing.T) {
	src := deviceOf(t, fullBytesForTest(t))
	if err := CreateOnDevice(t.Context(), src, overlayTestBytes, anyDevice); err != nil {
		t.Fatal(err)
	}
	guestWrites(t, src, basePatterns...)
	if !bytes.Equal(servedContent(t, src), content(t, src)) {
		t.Error("what is served has other bytes")
	}
	ovl := Image{Path: filepath.Join(t.TempDir(), "ovl"), Format: FormatQCOW2}
	if err := CreateOverlay(t.Context(), ovl.Path, src, overlayTestBytes, NewFile{}); err != nil {
		t.Fatal(err)
	}
	guestWrites(t, ovl, overlayPatterns...)
	want := content(t, ovl)
	for range 2 { // as after a crash
		if err := CommitOffline(t.Context(), ovl.Path, src, CommitOptions{}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content(t, src), want) {
			t.Fatal("the image on the device is not what the guest saw")
		}
	}
}
