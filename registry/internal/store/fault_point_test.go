// SPDX-License-Identifier: Apache-2.0

package store

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// A death at the first point leaves nothing of the change, and one at the second all
// of it.
func TestFaultPointsAreOnBothSidesOfTheCommit(t *testing.T) {
	stored := map[string]int{}
	var s *Store
	s = must(Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"), Options{FaultPoint: func(name string) {
		stored[name] = len(must(s.Events(t.Context(), 0))(t))
	}}))(t)
	t.Cleanup(func() { _ = s.Close() })
	must(s.CreateType(t.Context(), nobody, api.VolumeTypeCreate{Name: "fast"}))(t)
	if _, err := s.CreateType(t.Context(), nobody, api.VolumeTypeCreate{Name: "fast"}); err == nil {
		t.Error("a type was created twice")
	}
	want := map[string]int{"type.create.before_commit": 0, "type.create.after_commit": 1}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("events that are stored when the points are passed (-want +got):\n%s", diff)
	}
}
