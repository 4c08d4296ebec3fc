// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

func TestATableIsAListOfDefinitions(t *testing.T) {
	in := `before
| code | HTTP | what |
|---|---|---|
| a | 400 | one \| two |
| b | | |
after`
	want := `before

a (HTTP 400)
:   one | two

b
:   -

after`
	if diff := cmp.Diff(want, strings.Join(withoutTables(strings.Split(in, "\n")), "\n")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestARowOfManyCellsNamesTheColumnOfEach(t *testing.T) {
	in := []string{"| state | attach | detach | start | stop | migrate |", "|---|---|---|---|---|---|", "| off | ok | no | | no | ok |"}
	want := []string{"", "off", ":   attach: ok; detach: no; stop: no; migrate: ok", ""}
	if diff := cmp.Diff(want, withoutTables(append([]string{""}, in...))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEveryPageHasItsNameAndNoMarkdown(t *testing.T) {
	dir := t.TempDir()
	for _, p := range pages {
		if err := p.write("../..", dir); err != nil {
			t.Error(err)
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, p.name+"."+p.section))
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []string{"\n#", "](", "\n|", "|---", "\n-\n", "\n\\-\n"} {
			if strings.Contains(string(text), wrong) {
				t.Errorf("%s(%s) has %q", p.name, p.section, wrong)
			}
		}
		if !strings.Contains(string(text), "\n.ad l\n") {
			t.Errorf("%s(%s) is stretched to the width of the terminal", p.name, p.section)
		}
		if !strings.Contains(strings.ReplaceAll(string(text), `\-`, "-"), p.name+" - "+p.about) {
			t.Errorf("%s(%s) does not say what it is about", p.name, p.section)
		}
	}
}

func TestEveryErrorCodeHasItsLine(t *testing.T) {
	dir := t.TempDir()
	for _, p := range pages {
		if p.name == "volferry-errors" {
			if err := p.write("../..", dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "volferry-errors.7"))
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range api.Codes() {
		if !strings.Contains(string(text), string(code)+`\fR (HTTP `) {
			t.Errorf("volferry-errors(7) has no line for %s", code)
		}
	}
}
