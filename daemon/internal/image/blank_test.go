// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

func TestAFileIsBlankThatNobodyHasWrittenDataTo(t *testing.T) {
	const size = 8 << 20
	dir := t.TempDir()
	qemuImg := func(args ...string) func(string) error {
		return func(path string) error {
			return exec.CommandContext(t.Context(), "qemu-img", append(args, path, "8M")...).Run()
		}
	}
	at := func(off int64) func(string) error {
		return func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			if err := f.Truncate(size); err != nil {
				return err
			}
			_, err = f.WriteAt([]byte{1}, off)
			return err
		}
	}
	for name, c := range map[string]struct {
		make   func(path string) error
		format api.Format
		want   bool
	}{
		"empty":              {func(path string) error { return os.WriteFile(path, nil, 0o600) }, api.FormatRaw, true},
		"truncated":          {qemuImg("create", "-q", "-f", "raw"), api.FormatRaw, true},
		"zeros":              {func(path string) error { return os.WriteFile(path, make([]byte, size), 0o600) }, api.FormatRaw, true},
		"allocated":          {qemuImg("create", "-q", "-f", "raw", "-o", "preallocation=falloc"), api.FormatRaw, true},
		"one byte":           {at(5 << 20), api.FormatRaw, false},
		"the last byte":      {at(size - 1), api.FormatRaw, false},
		"the first byte":     {at(0), api.FormatRaw, false},
		"data behind it":     {at(size), api.FormatRaw, true},
		"a new qcow2":        {qemuImg("create", "-q", "-f", "qcow2"), api.FormatQcow2, true},
		"a new qcow2 as raw": {qemuImg("create", "-q", "-f", "qcow2"), api.FormatRaw, false},
		"a qcow2 with data": {func(path string) error {
			if err := qemuImg("create", "-q", "-f", "qcow2")(path); err != nil {
				return err
			}
			return exec.CommandContext(t.Context(), "qemu-io", "-f", "qcow2", "-c", "write 4M 64k", path).Run()
		}, api.FormatQcow2, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			if err := c.make(path); err != nil {
				t.Skipf("SKIPPED: %v", err)
			}
			got, err := Storage{}.Blank(t.Context(), api.Location{Path: path, Format: c.format, SizeBytes: size})
			if err != nil || got != c.want {
				t.Errorf("blank: %v, %v; want %v", got, err, c.want)
			}
		})
	}
}

func TestAFileInWhichTooMuchIsAllocatedIsNotTakenForBlank(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zeros")
	if err := os.WriteFile(path, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if off, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA); err != nil || off != 0 {
		t.Skip("SKIPPED: the filesystem keeps zeros as a hole")
	}
	for most, want := range map[int64]bool{4 << 20: true, 4<<20 - 1: false} {
		if got, err := onlyZeros(context.Background(), f, 4<<20, most); err != nil || got != want {
			t.Errorf("with a look at %d bytes: %v, %v; want %v", most, got, err, want)
		}
	}
}
