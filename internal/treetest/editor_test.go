// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever is in trouble is given commands, and not an editor with the definition of a guest in it:
// neither a message nor a page says so.
func TestNobodyIsSentToAnEditor(t *testing.T) {
	looked := 0
	for _, folder := range []string{"daemon", "registry", "ctl", "internal", "docs"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".md") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			looked++
			if strings.Contains(string(text), "virsh edit") {
				t.Errorf("%s names an editor", path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if looked < 100 {
		t.Errorf("only %d files were looked at", looked)
	}
}
