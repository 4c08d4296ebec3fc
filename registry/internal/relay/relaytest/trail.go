// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// WantTrail requires that the audit trail is intact, and has every transition of a migration up to
// end.
func (s *Site) WantTrail(migrationID string, end api.MigrationState) {
	s.T.Helper()
	ctx := s.T.Context()
	expect.Value(s.Store.Trail.Verify(ctx))(s.T)
	is := ""
	for since := int64(0); ; {
		events := expect.Value(s.Store.Trail.Events(ctx, since))(s.T)
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			since = e.Seq
			if e.What != "migration.transition" || e.Object != "migration/"+migrationID {
				continue
			}
			if is != "" && e.From != is {
				s.T.Errorf("by the trail the migration was %s and goes from %s to %s", is, e.From, e.To)
			}
			is = e.To
		}
	}
	if is != string(end) {
		s.T.Errorf("by the trail the migration is %s, and it is %s", is, end)
	}
}
