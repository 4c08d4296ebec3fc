// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

const miB = 1 << 20

// raw makes a sparse raw file with random data in the given ranges.
func raw(t testing.TB, name string, sizeBytes int64, data ...[2]int64) copy.Image {
	t.Helper()
	return rawAt(t, filepath.Join(t.TempDir(), name), sizeBytes, data...)
}

func rawAt(t testing.TB, path string, sizeBytes int64, data ...[2]int64) copy.Image {
	t.Helper()
	image := copy.Image{Path: path, Format: qemuimg.FormatRaw, SizeBytes: sizeBytes}
	if err := qemuimg.Create(t.Context(), qemuimg.Image{Path: path, Format: qemuimg.FormatRaw}, sizeBytes, qemuimg.NewFile{}); err != nil {
		t.Fatal(err)
	}
	fill(t, image, data...)
	return image
}

// fill writes nonzero random bytes, which depend only on the ranges.
func fill(t testing.TB, image copy.Image, data ...[2]int64) {
	t.Helper()
	f, err := os.OpenFile(image.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, r := range data {
		if _, err := f.WriteAt(randomBytes(r[0], r[1]), r[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// randomBytes returns the bytes of a range. No other goroutine has them yet, and the race detector
// would take seconds for a hundred MiB.
//
//go:norace
func randomBytes(offset, length int64) []byte {
	random := rand.NewPCG(uint64(offset), uint64(length))
	b := make([]byte, length)
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], random.Uint64()|0x0101010101010101)
	}
	return b
}

func read(t testing.TB, image copy.Image) []byte {
	t.Helper()
	f, err := os.Open(image.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, image.SizeBytes)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func mustCopy(t testing.TB, spec copy.Spec) copy.Result {
	t.Helper()
	result, err := copy.Copy(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func assertEqual(t testing.TB, src, dst copy.Image) {
	t.Helper()
	if !bytes.Equal(read(t, src), read(t, dst)) {
		t.Errorf("%s is not equal to %s", dst.Path, src.Path)
	}
}

func allocated(t testing.TB, image copy.Image) int64 {
	t.Helper()
	n, err := qemuimg.AllocatedBytes(image.Path)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for loop devices and mounts")
	}
}

// command runs a tool; the caller undoes its effects.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// loopDevice makes a block device of this size.
func loopDevice(t testing.TB, sizeBytes int64) copy.Image {
	t.Helper()
	needRoot(t)
	backing := raw(t, "loop", sizeBytes)
	device := command(t, "losetup", "--find", "--show", "--direct-io=on", backing.Path)
	t.Cleanup(func() { command(t, "losetup", "--detach", device) })
	return copy.Image{Path: device, Format: qemuimg.FormatRaw, SizeBytes: sizeBytes}
}

// reflinkDir mounts a filesystem that supports clones.
func reflinkDir(t testing.TB, mkfs ...string) string {
	t.Helper()
	device := loopDevice(t, 512*miB)
	command(t, mkfs[0], append(mkfs[1:], device.Path)...)
	dir := t.TempDir()
	command(t, "mount", device.Path, dir)
	t.Cleanup(func() { command(t, "umount", dir) })
	return dir
}

// pacerFunc is called before every chunk and delays nothing.
type pacerFunc func()

func (f pacerFunc) Allow() (int64, time.Duration) {
	f()
	return 16 * miB, 0
}

func (pacerFunc) Moved(int64)   {}
func (pacerFunc) Duty() float64 { return 1 }
