// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/op"
)

// A guest has filled the disk. Records and guards are written all the same, as long as
// the reserve lasts, which is for longer than any operation.
func TestTheJournalAndGuardsAreWrittenOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("skipped: a filesystem of its own needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ctx := context.Background()
	j, err := Open(ctx, filepath.Join(dir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	const reserved = 8 << 20
	r := atomicfile.NewReserve(filepath.Join(dir, "reserve"), reserved)
	t.Cleanup(r.Close)
	if has, err := r.Fill(); err != nil || has != reserved {
		t.Fatalf("the reserve has %d bytes, %v", has, err)
	}
	overlay := fill(t, filepath.Join(dir, "overlay"))

	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 1<<16), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	must(t, j.Create(ctx, op.Op{ID: "a", Kind: "k"}))
	for n := range int64(200) {
		must(t, j.Append(ctx, op.Record{OpID: "a", Seq: n + 1, Kind: op.EventNoted, Step: "s", Data: []byte(`"` + strings.Repeat("x", 2000) + `"`)}))
		must(t, atomicfile.Write(filepath.Join(dir, fmt.Sprintf("guard-%d", n)), make([]byte, 2000), 0o600))
	}
	if has, err := r.Fill(); err != nil || has == reserved {
		t.Errorf("the reserve is %d bytes on a full disk, %v", has, err)
	}
	must(t, os.Remove(overlay))
	if has, err := r.Fill(); err != nil || has != reserved {
		t.Errorf("the reserve is %d bytes once there is room, %v", has, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill takes all that is free.
func fill(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return path
}
