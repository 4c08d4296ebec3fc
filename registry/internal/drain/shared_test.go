// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"slices"
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

// share makes volume shared of two guests, and volume v0 of nobody.
func (s *site) share() {
	s.T.Helper()
	s.hosts["a"].Report(storetest.ClusterPools()...)
	s.ShareVolume("shared", storetest.At("/fast/shared"), map[string][]string{"a": {"g1", "g2"}})
	s.volume("a", "v0")
}

// drainShared drains pool fast.
func (s *site) drainShared(how api.PoolDrain, announced protocol.Announcement) string {
	s.T.Helper()
	s.Relay.Announced(storetest.HostA, announced)
	how.ToPool, how.Parallel, how.BandwidthBytesPerSecond, how.DeleteSource = "slow", 2, 1000, true
	return expect.Value(s.Store.CreateDrain(s.T.Context(), store.Call{}, "fast", how))(s.T).ID
}

func TestAVolumeOfSeveralInstancesMovesWithThemIfThatIsAskedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		how   api.PoolDrain
		asked func(p workflow.Pause) bool
	}{
		"while they write": {api.PoolDrain{LiveShared: true, MaxPauseSeconds: 7, ThrottleWriters: true}, func(p workflow.Pause) bool {
			return p.Request.Method == api.MethodLive && p.Live.MaxPause == 7*time.Second && p.Request.ThrottleWriters && !p.Request.PauseAll
		}},
		"with all of them paused": {api.PoolDrain{PauseAll: true}, func(p workflow.Pause) bool {
			return p.Request.Method != api.MethodLive && p.Live == nil && p.Request.PauseAll
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *site) { s.movesShared(tc.how, tc.asked) })
		})
	}
}

// movesShared claims that a drain moves a volume of several instances as it was asked to, once, also across a
// restart, and that it follows that move to its end.
func (s *site) movesShared(how api.PoolDrain, asked func(p workflow.Pause) bool) {
	t := s.T
	t.Helper()
	s.share()
	id := s.drainShared(how, protocol.Own())
	relaytest.Pass(time.Minute)
	s.restart()
	s.Relay.Announced(storetest.HostA, protocol.Own())
	relaytest.Pass(time.Minute)
	s.want(id, "running: shared moving, v0 moved")
	d := expect.Value(s.Store.Drain(t.Context(), id))(t)
	p := expect.Value(s.Store.Pause(t.Context(), d.Volumes[0].MigrationID))(t)
	if !asked(p) || !p.Request.DeleteSource || p.Request.BandwidthBytesPerSecond != 1000 || s.moves()["shared"] != 1 {
		t.Errorf("it is moved %d times, by %+v", s.moves()["shared"], p.Request)
	}
	s.takeBack(p.Migration.ID)
	s.until(id)
	s.want(id, "done: shared failed conflict, v0 moved")
}

// takeBack is an operator who cancels a move of a shared volume, of which nothing was touched yet.
func (s *site) takeBack(id string) {
	t := s.T
	t.Helper()
	p := expect.Value(s.Store.CancelPause(t.Context(), store.Call{}, id, nil))(t)
	for _, g := range p.Instances {
		g.State = workflow.PauseRestored
		expect.Value(s.Store.SetPauseInstance(t.Context(), store.Call{}, id, p.Phase, g))(t)
	}
	expect.Value(s.Store.ResumePause(t.Context(), store.Call{}, id))(t)
	expect.Value(s.Store.SetPauseCopy(t.Context(), store.Call{}, id, p.Phase, 0, "", nil))(t)
	expect.Value(s.Store.FinishPause(t.Context(), store.Call{}, id))(t)
}

// TestTwoVolumesOfTheSameInstancesMoveOneAfterTheOther: the second one waits, and is not skipped, because
// the first one has its instances.
func TestTwoVolumesOfTheSameInstancesMoveOneAfterTheOther(t *testing.T) {
	bubble(t, func(s *site) {
		s.share()
		second := relaytest.Kit.Available(s.T, s.Store, "a", "other", "gold", storetest.At("/fast/other"))
		for _, guest := range []string{"g1", "g2"} {
			relaytest.Kit.Attach(s.T, s.Store, api.AttachmentReserve{
				ID: storetest.NamedID(storetest.AttachmentKind, guest+"-o"), VolumeID: second, InstanceID: storetest.NamedID(storetest.InstanceKind, guest),
				Device: "vdc", Mode: api.ModeRW, Host: "a", Epoch: 1, Generation: 1, OpID: "o",
			})
		}
		id := s.drainShared(api.PoolDrain{PauseAll: true}, protocol.Own())
		relaytest.Pass(time.Minute)
		d := expect.Value(s.Store.Drain(s.T.Context(), id))(s.T)
		i := slices.IndexFunc(d.Volumes, func(v api.DrainVolume) bool { return v.MigrationID != "" && v.State == api.DrainVolumeMoving })
		first := d.Volumes[i]
		other := map[string]string{"shared": "other", "other": "shared"}[first.VolumeName]
		s.wantVolume(id, other, api.DrainVolumePending)
		s.takeBack(first.MigrationID)
		relaytest.Pass(time.Hour)
		s.wantVolume(id, first.VolumeName, api.DrainVolumeFailed)
		s.wantVolume(id, other, api.DrainVolumeMoving)
	})
}

// wantVolume claims how a volume of a drain is.
func (s *site) wantVolume(id, name, state string) {
	s.T.Helper()
	d := expect.Value(s.Store.Drain(s.T.Context(), id))(s.T)
	for _, v := range d.Volumes {
		if v.VolumeName == name && v.State != state {
			s.T.Errorf("volume %s is %s, want %s (%v)", name, v.State, state, v.Error)
		}
	}
}

func TestAVolumeWhoseHostCannotFollowItsGuestsIsSkipped(t *testing.T) {
	bubble(t, func(s *site) {
		s.share()
		id := s.drainShared(api.PoolDrain{LiveShared: true, ThrottleWriters: true}, protocol.Announcement{Protocol: 2, Features: []string{protocol.LiveShared}})
		s.until(id)
		s.want(id, "done: shared skipped state_forbidden, v0 moved")
	})
}

func TestADrainMovesSharedVolumesInOneWayOnly(t *testing.T) {
	bubble(t, func(s *site) {
		_, err := s.Store.CreateDrain(s.T.Context(), store.Call{}, "fast", api.PoolDrain{ToPool: "slow", LiveShared: true, PauseAll: true})
		if api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("both ways at once: %v", err)
		}
	})
}
