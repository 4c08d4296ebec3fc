// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// onPage is a page with everything that a page may have.
const onPage = "# A page\n\n" +
	"```\nbelongs to nothing\n```\n\n" +
	"## First\n\n" +
	"1. In a list:\n\n" +
	"   ```sh\n   # a comment\n   one --flag     # and why\n   two \\\n     goes on\n   ```\n   ```\n   shown\n   ```\n\n" +
	"   ```\n   shown, too\n   ```\n\n" +
	"And then:\n\n" +
	"```\nnot printed by it\n```\n\n" +
	"## Second\n\n" +
	"```toml\nkey = 1\n```\n"

func TestPageIsReadAsItsReaderDoes(t *testing.T) {
	want := []Block{
		{
			Heading: "First", Language: Shell, Commands: []string{"one --flag", "two goes on"}, Shown: "shown\nshown, too\n",
			Text: "# a comment\none --flag     # and why\ntwo \\\n  goes on\n",
		},
		{Heading: "Second", Language: "toml", Text: "key = 1\n"},
	}
	if diff := cmp.Diff(want, readBlocks(onPage)); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

// shell is a shell in which every command prints the same.
func shell(prints string, err error) func(context.Context, string) (string, string, error) {
	return func(context.Context, string) (string, string, error) { return prints, "", err }
}

func TestReaderFindsWhatIsNotAsOnThePage(t *testing.T) {
	b := Block{Commands: []string{"show it"}, Shown: "moved     2GiB in 14s, as a-8a4f21c7.raw at 2026-01-12T09:14:03Z\n"}
	for _, c := range []struct {
		name, prints string
		err          error
		fails        bool
	}{
		{name: "another time, id and indentation", prints: "moved 2GiB in 1m3.5s, as a-00ff00ff.raw at 2027-10-02T19:04:13Z\n"},
		{name: "another size", prints: "moved 3GiB in 14s, as a-8a4f21c7.raw at 2026-01-12T09:14:03Z\n", fails: true},
		{name: "a line more", prints: b.Shown + "and more\n", fails: true},
		{name: "nothing", fails: true},
		{name: "a command that fails", prints: b.Shown, err: context.Canceled, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Reader{Shell: shell(c.prints, c.err)}
			if err := r.Do(t.Context(), b); (err != nil) != c.fails {
				t.Errorf("got %v, want an error: %v", err, c.fails)
			}
		})
	}
}

func TestReaderPutsIntoThePageWhatItCannotSay(t *testing.T) {
	var typed []string
	r := &Reader{
		Words: map[string]string{"A": "4711"}, Names: []string{"alpha", "hv1"},
		Shell: func(_ context.Context, line string) (string, string, error) {
			typed = append(typed, line)
			return "", "", nil
		},
		Others: map[string]func(context.Context, string) error{
			"stand in":      func(context.Context, string) error { t.Error("the shorter one was called"); return nil },
			"stand in here": func(context.Context, string) error { return nil },
		},
	}
	if err := r.Do(t.Context(), Block{Commands: []string{"cancel A --at alpha --for A-team", "stand in here now", "stand inside"}}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(typed, "; "), "cancel 4711 --at hv1 --for A-team; stand inside"; got != want {
		t.Errorf("typed %q, want %q", got, want)
	}
}
