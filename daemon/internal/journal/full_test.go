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

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/test/fulldisk"
)

const reservedBytes = 8 << 20

// reserved reserves space in a directory.
func reserved(t *testing.T, dir string) *atomicfile.Reserve {
	t.Helper()
	r := atomicfile.NewReserve(filepath.Join(dir, "reserve"), reservedBytes)
	t.Cleanup(r.Close)
	if has, err := r.Fill(); err != nil || has != reservedBytes {
		t.Fatalf("the reserve has %d bytes, %v", has, err)
	}
	return r
}

// A guest has filled the disk. Records and guards are still written while the reserve lasts, longer
// than any operation.
func TestTheJournalAndGuardsAreWrittenOnAFullDisk(t *testing.T) {
	dir := fulldisk.Disk(t, 24)
	ctx := context.Background()
	j, err := Open(ctx, filepath.Join(dir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	r := reserved(t, dir)
	overlay := filepath.Join(dir, "overlay")
	fulldisk.Fill(t, overlay)

	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 1<<16), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	_, err = j.Create(ctx, op.Op{ID: "a", Kind: "k"})
	must(t, err)
	for n := range int64(200) {
		must(t, j.Append(ctx, op.Record{OpID: "a", Seq: n + 1, Kind: op.EventNoted, Step: "s", Data: []byte(`"` + strings.Repeat("x", 2000) + `"`)}))
		must(t, atomicfile.Write(filepath.Join(dir, fmt.Sprintf("guard-%d", n)), make([]byte, 2000), 0o600))
	}
	if has, err := r.Fill(); err != nil || has == reservedBytes {
		t.Errorf("the reserve is %d bytes on a full disk, %v", has, err)
	}
	must(t, os.Remove(overlay))
	if has, err := r.Fill(); err != nil || has != reservedBytes {
		t.Errorf("the reserve is %d bytes once there is room, %v", has, err)
	}
}

// A stopped daemon is started on a disk that a guest has filled since. SQLite creates a file in the
// directory of a journal that it opens.
func TestAJournalThatWasClosedOpensOnAFullDisk(t *testing.T) {
	dir := fulldisk.Disk(t, 24)
	must(t, addsOp(t, dir, "before"))
	reserved(t, dir)
	fulldisk.Fill(t, filepath.Join(dir, "overlay"))
	must(t, addsOp(t, dir, "after"))
}

func TestAJournalOnAFullDiskWithNothingReservedAsksForRoom(t *testing.T) {
	dir := fulldisk.Disk(t, 24)
	must(t, addsOp(t, dir, "before"))
	overlay := filepath.Join(dir, "overlay")
	fulldisk.Fill(t, overlay)
	if err := addsOp(t, dir, "full"); !errors.Is(err, op.ErrJournal) || !strings.Contains(err.Error(), "make room in "+dir) {
		t.Errorf("opening it: %v", err)
	}
	must(t, os.Remove(overlay))
	must(t, addsOp(t, dir, "after"))
}

// addsOp opens the journal in dir for one op.
func addsOp(t *testing.T, dir, id string) error {
	t.Helper()
	j, err := Open(t.Context(), filepath.Join(dir, "journal.db"))
	if err != nil {
		return err
	}
	_, err = j.Create(t.Context(), op.Op{ID: id, Kind: "k"})
	return errors.Join(err, j.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
