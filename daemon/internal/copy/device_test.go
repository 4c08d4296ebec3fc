// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

func TestFileToBlockDeviceAndBack(t *testing.T) {
	src := raw(t, "src", 32*miB+512, [2]int64{0, 3 * miB}, [2]int64{20*miB + 65536, 70000}, [2]int64{32 * miB, 512})
	device := loopDevice(t, src.SizeBytes)
	fill(t, device, [2]int64{0, 32*miB + 512})
	back := raw(t, "back", src.SizeBytes)
	for _, step := range []copy.Spec{{Src: src, Dst: device}, {Src: device, Dst: back}} {
		step.Verify = true
		if result := mustCopy(t, step); !result.Verified {
			t.Errorf("result %+v", result)
		}
		assertEqual(t, step.Src, step.Dst)
	}
	if n := allocated(t, back); n > 4*miB {
		t.Errorf("%d bytes allocated: the zeros of the device became no holes", n)
	}
}

func TestQcow2ToBlockDeviceAndBack(t *testing.T) {
	src, device := raw(t, "src", 16*miB, [2]int64{miB, 4 * miB}), loopDevice(t, 16*miB)
	fill(t, device, [2]int64{0, 16 * miB})
	first, second := qcow2(t, "first", 16*miB), qcow2(t, "second", 16*miB)
	back := raw(t, "back", 16*miB)
	for _, step := range []copy.Spec{{Src: src, Dst: first}, {Src: first, Dst: device}, {Src: device, Dst: second}, {Src: second, Dst: back}} {
		step.Verify = true
		mustCopy(t, step)
	}
	assertEqual(t, src, device)
	assertEqual(t, src, back)
}

// A qcow2 image on a device is both ends of a copy, and the device's earlier content appears
// nowhere. The device is exactly as large as the full image.
func TestToAnImageOnABlockDeviceAndBack(t *testing.T) {
	const size = 16*miB + 512
	src := raw(t, "src", size, [2]int64{0, size}) // all of it
	thin := raw(t, "thin", size, [2]int64{3 * miB, 70000})
	full, err := qemuimg.FullBytes(t.Context(), size)
	if err != nil {
		t.Fatal(err)
	}
	device := loopDevice(t, full)
	fill(t, device, [2]int64{0, full})
	image := copy.Image{Path: device.Path, Format: qemuimg.FormatQCOW2, SizeBytes: size}
	back := raw(t, "back", size)
	for _, from := range []copy.Image{src, thin} {
		if err := qemuimg.CreateOnDevice(t.Context(), qemuimg.Image{Path: device.Path, Format: qemuimg.FormatQCOW2}, size, func(*os.File) error { return nil }); err != nil {
			t.Fatal(err)
		}
		for _, step := range []copy.Spec{{Src: from, Dst: image, DstIsZero: true}, {Src: image, Dst: back}} {
			step.Verify = true
			if result := mustCopy(t, step); !result.Verified {
				t.Errorf("result %+v", result)
			}
		}
		assertEqual(t, from, back)
		if err := copy.Compare(t.Context(), copy.Spec{Src: from, Dst: image}); err != nil {
			t.Error(err)
		}
	}
}

// A program with an exclusive open of the device, such as a mount, keeps it unchanged.
func TestAnImageOnABlockDeviceThatSomebodyHasIsNotOverwritten(t *testing.T) {
	device := loopDevice(t, 32*miB)
	if err := qemuimg.CreateOnDevice(t.Context(), qemuimg.Image{Path: device.Path, Format: qemuimg.FormatQCOW2}, 16*miB, func(*os.File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(device.Path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = copy.Copy(t.Context(), copy.Spec{Src: raw(t, "src", 16*miB), Dst: copy.Image{Path: device.Path, Format: qemuimg.FormatQCOW2, SizeBytes: 16 * miB}})
	if !errors.Is(err, copy.ErrInUse) {
		t.Errorf("error %v", err)
	}
}

func TestABlockDeviceThatIsMountedIsNotOverwritten(t *testing.T) {
	device := loopDevice(t, 512*miB)
	command(t, "mkfs.xfs", "-q", device.Path)
	dir := t.TempDir()
	command(t, "mount", device.Path, dir)
	t.Cleanup(func() { command(t, "umount", dir) })
	_, err := copy.Copy(t.Context(), copy.Spec{Src: raw(t, "src", 512*miB), Dst: device})
	if !errors.Is(err, copy.ErrInUse) {
		t.Errorf("error %v", err)
	}
}

func TestReflinkIsClonedEqualAndIndependent(t *testing.T) {
	for name, mkfs := range map[string][]string{
		"xfs":   {"mkfs.xfs", "-q", "-m", "reflink=1"},
		"btrfs": {"mkfs.btrfs", "-q"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := reflinkDir(t, mkfs...)
			src := rawAt(t, filepath.Join(dir, "src"), 16*miB+512, [2]int64{miB, 8 * miB})
			dst := rawAt(t, filepath.Join(dir, "dst"), 16*miB+512, [2]int64{0, 16 * miB})
			result := mustCopy(t, copy.Spec{Src: src, Dst: dst, Verify: true})
			if !result.Cloned || !result.Verified || result.BytesCopied != 0 {
				t.Errorf("result %+v", result)
			}
			assertEqual(t, src, dst)
			before := read(t, src)
			fill(t, dst, [2]int64{2*miB + 8, 8})
			var mismatch *copy.MismatchError
			if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: dst}); !errors.As(err, &mismatch) || mismatch.Offset < 2*miB+8 || mismatch.Offset > 2*miB+15 {
				t.Errorf("after a write to dst: %v", err)
			}
			if string(before) != string(read(t, src)) {
				t.Error("a write to the clone changed src")
			}
		})
	}
}

func TestAcrossFilesystemsTheCopyStreams(t *testing.T) {
	src := raw(t, "src", 8*miB, [2]int64{0, 2 * miB})
	dst := rawAt(t, filepath.Join(reflinkDir(t, "mkfs.xfs", "-q"), "dst"), 8*miB)
	if result := mustCopy(t, copy.Spec{Src: src, Dst: dst, Verify: true}); result.Cloned {
		t.Errorf("result %+v", result)
	}
	assertEqual(t, src, dst)
}

func qcow2(t *testing.T, name string, sizeBytes int64) copy.Image {
	t.Helper()
	image := qemuimg.Image{Path: filepath.Join(t.TempDir(), name), Format: qemuimg.FormatQCOW2}
	if err := qemuimg.Create(t.Context(), image, sizeBytes, qemuimg.NewFile{}); err != nil {
		t.Fatal(err)
	}
	return copy.Image{Path: image.Path, Format: image.Format, SizeBytes: sizeBytes}
}
