// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

func TestEverySourceFileNamesItsLicense(t *testing.T) {
	const license = "SPDX-License-Identifier: Apache-2.0"
	eachFile(t, func(name, text string) {
		switch {
		case path.Ext(name) == ".go":
			if !strings.HasPrefix(text, "// "+license+"\n") {
				t.Errorf("%s does not begin with its license line", name)
			}
		case path.Ext(name) == ".sh" || strings.HasPrefix(text, "#!"):
			if !strings.Contains(text, "\n# "+license+"\n") {
				t.Errorf("%s has no license line", name)
			}
		}
	})
}

// What is left to do is an issue, not a comment.
func TestNothingIsLeftForLater(t *testing.T) {
	later := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	eachFile(t, func(name, text string) {
		for i, line := range strings.Split(text, "\n") {
			if later.MatchString(line) {
				t.Errorf("%s:%d: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	})
}

// The tree builds anywhere: it names no developer's machine and no particular
// mirror of packages, which each site chooses for itself.
func TestNoFileNamesAMachineOrAMirror(t *testing.T) {
	halves := func(names [][2]string) string {
		var out []string
		for _, n := range names {
			out = append(out, regexp.QuoteMeta(n[0]+n[1])) // in halves, for this file is searched too
		}
		return strings.Join(out, "|")
	}
	folders := halves([][2]string{{"/wo", "rk/"}, {"/ro", "ot/"}, {"/ho", "me/"}})
	mirrors := halves([][2]string{
		{"proxy.go", "lang.org"},
		{"sum.go", "lang.org"},
		{"deb.debi", "an.org"},
		{"security.debi", "an.org"},
		{"registry.npm", "js.org"},
		{"py", "pi.org"},
		{"crate", "s.io"},
		{"gh", "cr.io"},
		{"dock", "er.io"},
		{"qu", "ay.io"},
	})
	foreign := regexp.MustCompile(`(?:^|[^\w.])(?:` + folders + `)|` + mirrors)
	eachFile(t, func(name, text string) {
		for i, line := range strings.Split(text, "\n") {
			if found := foreign.FindString(line); found != "" {
				t.Errorf("%s:%d names %s", name, i+1, found)
			}
		}
	})
}
