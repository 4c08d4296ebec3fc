// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// drainLive drains pool fast, with volume shared of two guests, and volume v0 of nobody.
func (s *site) drainLive(announced protocol.Announcement) string {
	s.T.Helper()
	s.hosts["a"].Report(storetest.ClusterPools()...)
	s.ShareVolume("shared", storetest.At("/fast/shared"), map[string][]string{"a": {"g1", "g2"}})
	s.volume("a", "v0")
	s.Relay.Announced(storetest.HostA, announced)
	d := expect.Value(s.Store.CreateDrain(s.T.Context(), store.Call{}, "fast", api.PoolDrain{
		ToPool: "slow", Parallel: 2, BandwidthBytesPerSecond: 1000, DeleteSource: true, LiveShared: true, MaxPauseSeconds: 7, ThrottleWriters: true,
	}))(s.T)
	return d.ID
}

func TestAVolumeOfSeveralInstancesMovesWhileTheyWriteIfThatIsAskedFor(t *testing.T) {
	bubble(t, func(s *site) {
		id := s.drainLive(protocol.Own())
		relaytest.Pass(time.Minute)
		s.restart()
		s.Relay.Announced(storetest.HostA, protocol.Own())
		relaytest.Pass(time.Minute)
		s.want(id, "running: shared moving, v0 moved")
		d := expect.Value(s.Store.Drain(s.T.Context(), id))(s.T)
		p := expect.Value(s.Store.Pause(s.T.Context(), d.Volumes[0].MigrationID))(s.T)
		if in := p.Request; in.Method != api.MethodLive || p.Live.MaxPause != 7*time.Second || !in.ThrottleWriters || !in.DeleteSource || in.BandwidthBytesPerSecond != 1000 || s.moves()["shared"] != 1 {
			t.Errorf("it is moved %d times, by %+v", s.moves()["shared"], in)
		}
		// Nothing was touched yet, and an operator takes it back.
		p = expect.Value(s.Store.CancelPause(s.T.Context(), store.Call{}, p.Migration.ID, nil))(s.T)
		for _, g := range p.Instances {
			g.State = workflow.PauseRestored
			expect.Value(s.Store.SetPauseInstance(s.T.Context(), store.Call{}, p.Migration.ID, p.Phase, g))(s.T)
		}
		expect.Value(s.Store.ResumePause(s.T.Context(), store.Call{}, p.Migration.ID))(s.T)
		expect.Value(s.Store.SetPauseCopy(s.T.Context(), store.Call{}, p.Migration.ID, p.Phase, 0, "", nil))(s.T)
		expect.Value(s.Store.FinishPause(s.T.Context(), store.Call{}, p.Migration.ID))(s.T)
		s.until(id)
		s.want(id, "done: shared failed conflict, v0 moved")
	})
}

func TestAVolumeWhoseHostCannotFollowItsGuestsIsSkipped(t *testing.T) {
	bubble(t, func(s *site) {
		id := s.drainLive(protocol.Announcement{Protocol: 2, Features: []string{protocol.LiveShared}})
		s.until(id)
		s.want(id, "done: shared skipped state_forbidden, v0 moved")
	})
}
