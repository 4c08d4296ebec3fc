// SPDX-License-Identifier: Apache-2.0

package sharedmove_test

import (
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/store"
)

// follow executes, like an operator, the commands that a migration shows when it needs one.
func (s *site) follow(id string) {
	s.T.Helper()
	m := expect.Value(s.Store.Migrations.Get(s.T.Context(), id, store.Viewer{}))(s.T)
	again, _ := m.Cures()
	if m.State != api.MigrationNeedsOperator || again == "" {
		s.T.Fatalf("the migration is %s, and says %q", m.State, again)
	}
	for _, line := range strings.Split(again, api.CureSeparator) {
		s.types(line)
	}
}

func (s *site) types(line string) {
	s.T.Helper()
	words := strings.Fields(line)
	if slices.Equal(words[:3], []string{"volferryctl", "instance", "start"}) {
		// Any host may start it: the move does not prevent it.
		s.until(s.migrationID())
		if i := s.instance(words[3]); i.Locked {
			s.T.Errorf("%s: it is locked: %s", line, i.LockReason)
		}
		return
	}
	err := s.Type(line)
	if words[2] == "complete" && api.CodeOf(err) == api.CodeNotFound {
		err = s.adopt(words[3], s.Store.Pauses.AdoptMoved)
	}
	if err != nil {
		s.T.Errorf("%s: %v", line, err)
	}
}

// migrationID returns the id of the site's only move.
func (s *site) migrationID() string {
	s.T.Helper()
	return expect.Value(s.Store.Migrations.All(s.T.Context(), "", true, store.Viewer{}))(s.T)[0].ID
}

func (s *site) instance(name string) api.Instance {
	s.T.Helper()
	all := expect.Value(s.Store.Instances.All(s.T.Context(), store.Viewer{}))(s.T)
	i := slices.IndexFunc(all, func(i api.Instance) bool { return i.Name == name })
	if i < 0 {
		s.T.Fatalf("there is no instance %s", name)
	}
	return all[i]
}
