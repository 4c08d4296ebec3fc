// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// pages serves the pages of a list of volumes by their cursors.
func pages(t *testing.T, of map[string]http.Handler) *client.Registry {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of[r.URL.Query().Get("after")].ServeHTTP(w, r)
	}))
	r, err := client.NewRegistry(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func page(names, next string) http.Handler {
	var things []string
	for _, name := range strings.Fields(names) {
		things = append(things, fmt.Sprintf(`{"id":"id-%s","name":%q}`, name, name))
	}
	body := `{"schema_version":1,"volumes":[` + strings.Join(things, ",") + `]`
	if next != "" {
		body += fmt.Sprintf(`,"next":%q`, next)
	}
	return answering(http.StatusOK, body+"}")
}

func namesOf(volumes []api.Volume) (names []string) {
	for _, v := range volumes {
		names = append(names, v.Name)
	}
	return names
}

func TestAListIsFollowedPageByPageAndPutIntoItsOrder(t *testing.T) {
	r := pages(t, map[string]http.Handler{"": page("d b", "p 1"), "p 1": page("c", "p/2"), "p/2": page("a", "")})
	all, err := r.Volumes(t.Context())
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, namesOf(all)); diff != "" || err != nil {
		t.Errorf("list (%v):\n%s", err, diff)
	}
	var seen []string
	err = r.EachVolume(t.Context(), func(v *api.Volume) error {
		seen = append(seen, v.Name)
		return nil
	})
	if diff := cmp.Diff([]string{"d", "b", "c", "a"}, seen); diff != "" || err != nil {
		t.Errorf("visit (%v):\n%s", err, diff)
	}
}

func TestAListFailsWithAnyOfItsPages(t *testing.T) {
	for name, second := range map[string]http.Handler{
		"refused":    answering(http.StatusServiceUnavailable, `{"error":{"code":"registry_unavailable","message":"away"}}`),
		"no list":    answering(http.StatusOK, `{"schema_version":1,"volumes":7}`),
		"torn":       answering(http.StatusOK, `{"schema_version":1,"volumes":[{"id":"x"`),
		"odd cursor": answering(http.StatusOK, `{"schema_version":1,"volumes":[],"next":7}`),
	} {
		r := pages(t, map[string]http.Handler{"": page("a", "2"), "2": second})
		if all, err := r.Volumes(t.Context()); err == nil || all != nil {
			t.Errorf("%s: %v (%v)", name, namesOf(all), err)
		}
		if err := r.EachVolume(t.Context(), func(*api.Volume) error { return nil }); err == nil {
			t.Errorf("%s: the visit ends well", name)
		}
	}
}

func TestAListWithoutEndIsGivenUp(t *testing.T) {
	r := pages(t, map[string]http.Handler{"": page("a", "1"), "1": page("b", "2"), "2": page("c", "1")})
	if _, err := r.Volumes(t.Context()); api.CodeOf(err) != api.CodeInternal || !strings.Contains(err.Error(), "read already") {
		t.Errorf("a circle of pages: %v", err)
	}
	asked := 0
	err := client.FollowPages(func(string) (string, error) {
		asked++
		return fmt.Sprint(asked), nil
	})
	if api.CodeOf(err) != api.CodeInternal || asked > 10_001 {
		t.Errorf("pages without end: %v after %d of them", err, asked)
	}
}
