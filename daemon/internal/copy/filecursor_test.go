// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/test/fulldisk"
)

// A guest has filled the disk that its overlay shares with the cursor. The partial record of a
// failed write must cause no problem.
func TestACursorIsWrittenOnAFullDisk(t *testing.T) {
	dir := fulldisk.Disk(t, 24)
	reserve := atomicfile.NewReserve(filepath.Join(dir, "reserve"), 8<<20)
	defer reserve.Close()
	if _, err := reserve.Fill(); err != nil {
		t.Fatal(err)
	}
	cursor := copy.NewFileCursor(filepath.Join(dir, "cursor"))
	defer cursor.Close()
	var want []byte
	for n := range 60 {
		if n == 1 {
			fulldisk.Fill(t, filepath.Join(dir, "overlay"))
		}
		record := fmt.Appendf(nil, "%d:%s\n", n, bytes.Repeat([]byte("x"), 50_000))
		want = append(want, record...)
		if err := cursor.Append(record); err != nil {
			t.Fatalf("record %d: %v", n, err)
		}
	}
	if has, err := cursor.Load(); err != nil || !bytes.Equal(has, want) {
		t.Errorf("the cursor has %d bytes (%v), want the %d that were written", len(has), err, len(want))
	}
}
