// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http/httptest"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// A client with several URLs detects by this header that it reached another registry or process.
func TestEachAnswerSaysWhichRegistryAndProcessItIsOf(t *testing.T) {
	s := newSite(t)
	seen := map[string]bool{}
	for _, path := range []string{"/v1/version", "/v1/hosts/none", "/nowhere"} {
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		seen[w.Header().Get(api.RegistryHeader)] = true
	}
	id := s.store.Marks.Now().RegistryID
	if len(seen) != 1 {
		t.Fatalf("answers are of %v", seen)
	}
	for who := range seen {
		if len(who) <= len(id)+1 || who[:len(id)+1] != id+" " {
			t.Errorf("answers are of %q, want %q and a process", who, id)
		}
		w := httptest.NewRecorder()
		s.server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/version", nil))
		if w.Header().Get(api.RegistryHeader) == who {
			t.Error("another process says the same")
		}
	}
}
