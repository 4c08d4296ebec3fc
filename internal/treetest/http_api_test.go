// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

var update = flag.Bool("update", false, "write what the test compares with the tree")

const (
	apiPage     = "docs/reference/http-api.md"
	tablesBegin = "<!-- The tables are made of internal/routes: go test ./internal/treetest -run HTTPAPI -update -->\n"
	tablesEnd   = "<!-- Here the tables end. -->\n"
)

// The reference is made of the declarations, so a route cannot be missing there, or be
// another one.
func TestHTTPAPIReferenceHasEveryRoute(t *testing.T) {
	path := filepath.Join(root, apiPage)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tablesBegin)
	_, after, ends := strings.Cut(rest, tablesEnd)
	if !begins || !ends {
		t.Fatalf("%s does not say where its tables begin and end", apiPage)
	}
	want := before + tablesBegin + routeTables() + tablesEnd + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // everybody reads documentation
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(text), "\n")); diff != "" {
		t.Errorf("%s; 'go test ./internal/treetest -run HTTPAPI -update' writes its tables (-want +got):\n%s", apiPage, diff)
	}
}

// nounsOfPaths are the headings of the tables, by the first part of their paths.
var nounsOfPaths = []struct{ part, heading string }{
	{"volumes", "Volumes"},
	{"attachments", "Attachments"},
	{"instances", "Instances"},
	{"migrations", "Migrations"},
	{"pools", "Pools and drains"},
	{"drains", "Pools and drains"},
	{"types", "Types and policies"},
	{"policies", "Types and policies"},
	{"hosts", "Hosts and their tasks"},
	{"", "The program, its ops, the audit trail"},
}

// routeTables returns a table of routes for each heading.
func routeTables() string {
	rows := map[string][]*routes.Declaration{}
	for _, d := range routes.All() {
		heading := headingOf(d)
		rows[heading] = append(rows[heading], d)
	}
	var text strings.Builder
	written := map[string]bool{}
	for _, noun := range nounsOfPaths {
		if written[noun.heading] {
			continue
		}
		written[noun.heading] = true
		fmt.Fprintf(&text, "\n### %s\n\n| route | takes | gives | access | daemon | registry | |\n|---|---|---|---|---|---|---|\n", noun.heading)
		of := rows[noun.heading]
		slices.SortFunc(of, func(a, b *routes.Declaration) int {
			return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
		})
		for _, d := range of {
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s | %s | %s |\n", d, taken(d), given(d), d.Access, atDaemon(d), atRegistry(d), strings.ReplaceAll(d.Summary, "|", `\|`))
		}
	}
	return text.String() + "\n"
}

func headingOf(d *routes.Declaration) string {
	part, _, _ := strings.Cut(strings.TrimPrefix(d.Path, "/v1/"), "/")
	part, _, _ = strings.Cut(part, ":")
	for _, noun := range nounsOfPaths {
		if noun.part == part || noun.part == "" {
			return noun.heading
		}
	}
	return "" // not reached: the last one is of every path
}

// served is the route as one of the programs has it, and as the registry has it where
// both have.
func served(d *routes.Declaration) httpjson.Route {
	if d.Registry != nil {
		return d.ServedByRegistry(nil)
	}
	return d.ServedByDaemon(nil)
}

// taken are the query parameters of a route and the type of its body.
func taken(d *routes.Declaration) string {
	r := served(d)
	var words []string
	for _, name := range r.Query {
		word := "`?" + name + "`"
		if d.Daemon != nil && !slices.Contains(d.Daemon.Query, name) {
			word += " (registry)"
		}
		words = append(words, word)
	}
	if r.In != nil {
		words = append(words, "`"+reflect.TypeOf(r.In).Name()+"`")
	}
	return strings.Join(words, ", ")
}

// given are the members of the answer of a route.
func given(d *routes.Declaration) string {
	r := served(d)
	if r.Lines != nil {
		return "lines of `" + reflect.TypeOf(r.Lines).Name() + "`"
	}
	var words []string
	for _, noun := range r.Out {
		if noun.Name == "stale" || noun.Name == "age_seconds" {
			continue // of every route that a daemon remembers: the page says it once
		}
		words = append(words, "`"+noun.Name+"`")
	}
	return strings.Join(words, ", ")
}

func atDaemon(d *routes.Declaration) string {
	if d.Daemon == nil {
		return "-"
	}
	switch d.Daemon.Part {
	case routes.Answers, routes.Streams:
		return "answers"
	case routes.PassesOn:
		return "passes on"
	case routes.Remembers:
		return "remembers"
	}
	return ""
}

func atRegistry(d *routes.Declaration) string {
	if d.Registry == nil {
		return "-"
	}
	return d.Registry.Hosts.String()
}
