// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestTheLogStaysShortWhileChangesAreMade(t *testing.T) {
	const pages, changes = 64, 8 * lookEvery
	path := filepath.Join(t.TempDir(), "registry.db")
	s := openStore(t, path, Options{})
	if err := s.folder.stop(); err != nil {
		t.Fatal(err)
	}
	log := must(s.db.NewFolder(t.Context()))(t)
	s.folder = startFolder(log, s.writer, pages)
	most := 0
	for n := range changes {
		if err := s.writer.submit(t.Context(), func(ctx context.Context, tx *writeTx) error {
			return tx.runNoArgs(ctx, fmt.Sprintf("UPDATE policies SET enabled = %d", n%2))
		}); err != nil {
			t.Fatal(err)
		}
		most = max(most, must(log.Left(t.Context()))(t))
	}
	if most < pages {
		t.Fatalf("the log had %d pages at most: there was nothing to fold", most)
	}
	// It would be a page for each change.
	if size := must(os.Stat(path + "-wal"))(t).Size(); size > changes*4096/2 {
		t.Errorf("the log has %d KiB after %d changes of a page", size>>10, changes)
	}
}
