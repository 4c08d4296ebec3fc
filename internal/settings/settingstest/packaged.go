// SPDX-License-Identifier: Apache-2.0

// Package settingstest tests the configuration files of the packages.
package settingstest

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// commented matches a key in a packaged file, where all keys are commented.
var commented = regexp.MustCompile(`(?m)^#([a-z_]+) = `)

// Packaged tests that a packaged file names every key of C except those in except, each with its
// default: with all keys uncommented, load returns the same as for an empty file.
func Packaged[C any](t *testing.T, file string, load func(path string) (*C, error), except ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, match := range commented.FindAllStringSubmatch(string(text), -1) {
		named[match[1]] = true
	}
	for _, key := range except {
		named[key] = strings.Contains(string(text), "\n# ["+key+"]") || strings.Contains(string(text), "\n# ["+key+".")
	}
	fields := reflect.TypeFor[C]()
	for i := range fields.NumField() {
		if key := fields.Field(i).Tag.Get("toml"); key != "" && !named[key] {
			t.Errorf("%s does not name %s", file, key)
		}
	}
	read := func(content string) *C {
		path := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	uncommented := commented.ReplaceAllString(string(text), "$1 = ")
	if diff := cmp.Diff(read(""), read(uncommented), cmpopts.EquateEmpty(), cmp.AllowUnexported(*new(C))); diff != "" {
		t.Errorf("%s has defaults that are none (-default +file):\n%s", file, diff)
	}
}
