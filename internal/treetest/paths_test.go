// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quotedPath is a path from the top of the repository in a document.
var quotedPath = regexp.MustCompile("`((?:ctl|daemon|docs|internal|monitoring|packaging|registry|systemd|test)/[^` ]*)`")

// A newcomer goes where the map says, so what it names has to be there.
func TestPathsInTheMapExist(t *testing.T) {
	for _, document := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"} {
		text, err := os.ReadFile(filepath.Join(root, document))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range quotedPath.FindAllStringSubmatch(string(text), -1) {
			path := strings.TrimSuffix(strings.ReplaceAll(match[1], "...", ""), "/")
			found, err := filepath.Glob(filepath.Join(root, path))
			if err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which is not there", document, match[1])
			}
		}
	}
}
