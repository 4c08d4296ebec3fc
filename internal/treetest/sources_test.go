// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// programFolders are the folders of what is built.
var programFolders = []string{"ctl", "daemon", "internal", "registry"}

// source is a file of Go that is no test.
type source struct {
	pkg  string // its folder
	file *ast.File
	at   func(ast.Node) token.Position
}

// eachSource reads the files of Go below these folders, without their tests.
func eachSource(t *testing.T, folders []string, read func(source)) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			pkg, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			read(source{pkg, file, func(n ast.Node) token.Position { return files.Position(n.Pos()) }})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
