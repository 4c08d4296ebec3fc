// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
)

// A host moves one volume of a confined guest at a time, and the first move waits for an operator.
func TestADrainEndsAlthoughAHostRefusesAVolumeUntilAnOperatorHasActed(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(2, "a")
		s.hosts["a"].end["v1"] = api.MigrationNeedsOperator
		busy := api.Errorf(api.CodeInstanceBusy, "cannot migrate volume v0: a migration moves volume v1")
		for range 100 {
			s.hosts["a"].refuse["v0"] = append(s.hosts["a"].refuse["v0"], refusal(busy))
		}
		id := s.drain(2)
		relaytest.Pass(time.Minute)
		moving := expect.Value(s.Store.Drains.Get(s.T.Context(), id))(s.T).Volumes[1].MigrationID
		for i := range s.hosts["a"].refuse["v0"] {
			s.hosts["a"].refuse["v0"][i] = refusal(busy.With("migration_id", moving))
		}
		relaytest.Pass(time.Hour)
		if d := expect.Value(s.Store.Drains.Get(s.T.Context(), id))(s.T); d.State != api.DrainDone {
			s.T.Errorf("after an hour the drain is %s: %+v", d.State, d.Volumes)
		}
	})
}
