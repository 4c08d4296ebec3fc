// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestLinksInDocumentsPointAtFiles(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	eachFile(t, func(name, text string) {
		if path.Ext(name) != ".md" {
			return
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(name), target)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
	})
}

// The package of volferryctl has the pages of docs/, and what they link to at the same place
// beside them.
func TestWhatPackagedPagesLinkToIsPackaged(t *testing.T) {
	const config, shared = "packaging/nfpm/volferryctl.yaml", "/usr/share/doc/volferryctl/"
	contents, err := os.ReadFile(filepath.Join(root, config))
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)\s#]+)`)
	eachFile(t, func(name, text string) {
		if path.Ext(name) != ".md" || !strings.HasPrefix(name, "docs/") || strings.HasPrefix(name, "docs/evidence/") {
			return
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to := path.Join(path.Dir(name), m[1])
			packaged := strings.HasPrefix(to, "docs/") && !strings.HasPrefix(to, "docs/evidence/")
			if strings.Contains(m[1], "://") || packaged {
				continue
			}
			if !strings.Contains(string(contents), "src: "+to+", dst: "+shared+to+",") {
				t.Errorf("%s links to %s, which %s does not have", name, to, config)
			}
		}
	})
}

func TestMakeTargetsInDocumentsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	mention := regexp.MustCompile("`make ([a-z0-9-]+)")
	eachFile(t, func(name, text string) {
		if path.Ext(name) != ".md" {
			return
		}
		for _, m := range mention.FindAllStringSubmatch(text, -1) {
			if !targets[m[1]] {
				t.Errorf("%s speaks of make %s, which the Makefile does not have", name, m[1])
			}
		}
	})
}
