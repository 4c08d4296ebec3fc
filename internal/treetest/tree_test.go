// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/volferry/volferry"

// root is the top of the repository, as seen from this package.
const root = "../.."

// goPackage is what `go list` says of a package, as far as it matters here.
type goPackage struct {
	ImportPath   string
	Name         string
	Dir          string
	GoFiles      []string
	TestGoFiles  []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// rel is the import path without the module: "daemon/internal/op".
func (p *goPackage) rel() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// goList runs go list once for all tests.
var goList = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.CommandContext(context.Background(), "go", "list", "-json", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("go list: %w\n%s", err, exit.Stderr)
	}
	return out, err
})

// packages lists the packages of the module.
func packages(t *testing.T) []*goPackage {
	t.Helper()
	out, err := goList()
	if err != nil {
		t.Fatal(err)
	}
	var list []*goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		p := new(goPackage)
		if err := dec.Decode(p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	if len(list) < 5 {
		t.Fatalf("go list found %d packages; this test looks at the wrong place", len(list))
	}
	return list
}

// eachFile calls f for every text file that people write: no build output, no
// caches, no test data, no generated sums, no licence text.
func eachFile(t *testing.T, f func(path, text string)) {
	t.Helper()
	count := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if slices.Contains([]string{".git", ".cache", "bin", "build", "dist", "testdata"}, name) {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || name == "go.sum" || name == "LICENSE" || name == ".git" { // the last in a worktree of git
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.IndexByte(data, 0) >= 0 {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		count++
		f(filepath.ToSlash(rel), string(data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 20 {
		t.Fatalf("found %d files; this test looks at the wrong place", count)
	}
}
