// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"regexp"
	"strings"
	"testing"
)

// missing is a message of its own for a name or an id that nothing has.
var missing = regexp.MustCompile(`api\.CodeNotFound, "(there is )?no (host|pool|volume|volume type|instance|attachment|migration|drain|op|operation) %(\.\d+)?[qsv]("|;| on this host[";])`)

func TestWhatIsNotThereIsSaidInOneWay(t *testing.T) {
	eachFile(t, func(path, text string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return
		}
		if found := missing.FindString(text); found != "" {
			t.Errorf("%s: %s…: api.NotFound says this, and how to list what there is", path, found)
		}
	})
}
