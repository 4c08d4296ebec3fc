// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quotedName is a name of the code in a document: of mixed case, perhaps after its type or package.
var quotedName = regexp.MustCompile("`(?:[A-Za-z]+\\.)?([A-Za-z]*[a-z][A-Z]\\w*|[A-Z][a-z]+\\w*)`")

// otherNames are examples of the documents, and names of systemd.
var otherNames = map[string]bool{
	"copyTimeoutSeconds": true, "TestResume2": true, "TestResumeAfterPivotDoesNotUndo": true,
	"PrivateNetwork": true, "RestrictAddressFamilies": true,
}

// A newcomer searches the names of the map, and finds nothing where one is from long ago.
func TestNamesInTheMapAreInTheCode(t *testing.T) {
	words := map[string]bool{}
	word := regexp.MustCompile(`\w+`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".js") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, w := range word.FindAllString(string(text), -1) {
			words[w] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, document := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, document))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range quotedName.FindAllStringSubmatch(string(text), -1) {
			found++
			if name := match[1]; !words[name] && !otherNames[name] {
				t.Errorf("%s names %s, which no code has", document, match[0])
			}
		}
	}
	if found < 80 {
		t.Errorf("%d names were found, and there were more", found)
	}
}
