// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/journal"
	"github.com/volferry/volferry/daemon/internal/op"
)

func TestOpenOpsAreThoseThatAreNotOver(t *testing.T) {
	dir := t.TempDir()
	list := func() (string, error) {
		var out strings.Builder
		err := run(t.Context(), []string{"open-ops", "--config", "/dev/null", "--state-dir", dir}, &out, io.Discard)
		return out.String(), err
	}
	if out, err := list(); out != "" || err != nil {
		t.Errorf("without a journal: %q, %v", out, err)
	}
	records, err := journal.Open(t.Context(), filepath.Join(dir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"over", "open"} {
		if _, err := records.Create(t.Context(), op.Op{ID: id, Kind: "volume.create", CreatedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := records.Append(t.Context(), op.Record{OpID: "over", Seq: 1, At: time.Now(), Kind: op.EventFinished}); err != nil {
		t.Fatal(err)
	}
	if out, err := list(); err == nil {
		t.Errorf("while the daemon has the journal: %q and no error", out)
	}
	if err := records.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := list(); out != "operation open (volume.create)\n" || err != nil {
		t.Errorf("open ops = %q, %v", out, err)
	}
}
