// SPDX-License-Identifier: Apache-2.0

package web

import (
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// eachPageFile calls f for every file of the page.
func eachPageFile(t *testing.T, f func(name, text string)) {
	t.Helper()
	n := 0
	err := fs.WalkDir(embedded, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		text, err := fs.ReadFile(embedded, path)
		f(strings.TrimPrefix(path, "page/"), string(text))
		return err
	})
	if err != nil || n < 5 {
		t.Fatalf("%d files: %v", n, err)
	}
}

// Texts come from hosts and guests, and must never be interpreted as HTML.
func TestPageMakesNoHTMLOfTexts(t *testing.T) {
	html := regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|createContextualFragment|\beval\b|new Function|\son\w+=|javascript:|style=`)
	eachPageFile(t, func(name, text string) {
		if found := html.FindString(text); found != "" {
			t.Errorf("%s has %s", name, found)
		}
	})
}

func TestPageNeedsNothingFromElsewhere(t *testing.T) {
	elsewhere := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]+`)
	eachPageFile(t, func(name, text string) {
		text = strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
		if found := elsewhere.FindString(text); found != "" {
			t.Errorf("%s names %s", name, found)
		}
	})
}

func TestPageReadsOnlyWhatIsForwarded(t *testing.T) {
	known := map[string]bool{}
	for _, d := range forwarded {
		known[strings.TrimSuffix(wildcard.ReplaceAllString(d.Path, ""), "/")] = true
	}
	read := regexp.MustCompile(`/v1/[a-z]+`)
	var asked []string
	eachPageFile(t, func(name, text string) {
		for _, path := range read.FindAllString(text, -1) {
			asked = append(asked, path)
			if !known[path] {
				t.Errorf("%s reads %s, which is not forwarded", name, path)
			}
		}
	})
	for path := range known {
		if !slices.Contains(asked, path) {
			t.Errorf("%s is forwarded, and the page does not read it", path)
		}
	}
}

func TestFilesOfThePageHaveTheirTypes(t *testing.T) {
	s := openSite(t)
	types := map[string]string{"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
	eachPageFile(t, func(name, _ string) {
		if name == "index.html" {
			return // it is /
		}
		resp := s.ask(t, "GET", "/"+name)
		want := types[name[strings.LastIndex(name, ".")+1:]]
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || want == "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s is answered with %s as %s", name, resp.Status, got)
		}
	})
}
