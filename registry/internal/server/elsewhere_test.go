// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
)

// A call at the wrong program gets a readable error, not one about HTTP.
func TestEveryCallThatOnlyAHostAnswersIsRefusedInPlainWords(t *testing.T) {
	s, n := newSite(t), 0
	for _, d := range routes.All() {
		if d.Registry != nil || slices.ContainsFunc(s.server.Routes(), func(r httpjson.Route) bool { return r.Method+" "+r.Path == d.String() }) {
			continue
		}
		n++
		path := d.PathOf(slices.Repeat([]string{"x"}, strings.Count(d.Path, "{"))...)
		w := s.do(t, d.Method, path, "")
		wantError(t, w, api.CodeNotFound)
		if !strings.Contains(w.Body.String(), "only a host does this") {
			t.Errorf("%s is answered with %s", d, w.Body)
		}
	}
	if n == 0 {
		t.Error("every call of a host is one of the registry: nothing was tried")
	}
}
