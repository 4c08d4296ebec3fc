// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestTheLogStaysShortWhileChangesAreMade(t *testing.T) {
	const pages, changes = 64, 8 * checkpointEvery
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := openLedger(t, path, Options{})
	if err := l.checkpointer.stop(); err != nil {
		t.Fatal(err)
	}
	wal := must(l.db.NewCheckpointer(t.Context()))(t)
	l.checkpointer = startCheckpointer(wal, l.writer, pages)
	if err := l.Submit(t.Context(), insertThing("")); err != nil {
		t.Fatal(err)
	}
	most := 0
	for n := range changes {
		if err := l.Submit(t.Context(), execute(fmt.Sprintf("UPDATE things SET name = '%d'", n%2))); err != nil {
			t.Fatal(err)
		}
		most = max(most, must(wal.Pending(t.Context()))(t))
	}
	if most < pages {
		t.Fatalf("the log had %d pages at most: there was nothing to write into the file", most)
	}
	// Without checkpoints the log would have a page for each change.
	if size := must(os.Stat(path + "-wal"))(t).Size(); size > changes*4096/2 {
		t.Errorf("the log has %d KiB after %d changes of a page", size>>10, changes)
	}
}
