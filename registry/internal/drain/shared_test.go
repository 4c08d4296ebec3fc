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

// share makes the volume shared for two guests, and the unattached volume v0.
func (s *site) share() {
	s.T.Helper()
	s.hosts["a"].Report(storetest.ClusterPools()...)
	s.ShareVolume("shared", storetest.At("/fast/shared"), map[string][]string{"a": {"g1", "g2"}})
	s.volume("a", "v0")
}

// give makes a volume of a type in pool fast, and attaches it to these guests as device.
func (s *site) give(name, volumeType, device string, guests ...string) {
	s.T.Helper()
	volumeID := relaytest.Kit.Available(s.T, s.Store, "a", name, volumeType, storetest.At("/fast/"+name))
	for _, guest := range guests {
		relaytest.Kit.Attach(s.T, s.Store, api.AttachmentReserve{
			ID: storetest.NamedID(storetest.AttachmentKind, guest+device[2:]), VolumeID: volumeID, InstanceID: storetest.NamedID(storetest.InstanceKind, guest),
			Device: device, Mode: api.ModeRW, Host: "a", Epoch: 1, Generation: 1, OpID: "o",
		})
	}
}

// drainShared drains pool fast.
func (s *site) drainShared(how api.PoolDrain, announced protocol.Announcement) string {
	s.T.Helper()
	s.Relay.Announced(storetest.HostA, announced)
	how.ToPool, how.Parallel, how.BandwidthBytesPerSecond, how.DeleteSource = "slow", 2, 1000, true
	return expect.Value(s.Store.Drains.Create(s.T.Context(), store.Call{}, "fast", how))(s.T).ID
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

// movesShared requires that a drain moves a volume of several instances as requested, once, even
// across a restart, and follows that move to its end.
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
	d := expect.Value(s.Store.Drains.Get(t.Context(), id))(t)
	p := expect.Value(s.Store.Pauses.Get(t.Context(), d.Volumes[0].MigrationID))(t)
	if !asked(p) || !p.Request.DeleteSource || p.Request.BandwidthBytesPerSecond != 1000 || s.moves()["shared"] != 1 {
		t.Errorf("it is moved %d times, by %+v", s.moves()["shared"], p.Request)
	}
	s.takeBack(p.Migration.ID)
	s.until(id)
	s.want(id, "done: shared failed conflict, v0 moved")
}

// bring sets the state of every guest of a move of a shared volume.
func (s *site) bring(p workflow.Pause, state string) workflow.Pause {
	s.T.Helper()
	for _, g := range p.Instances {
		g.State = state
		p = expect.Value(s.Store.Pauses.SetInstance(s.T.Context(), store.Call{}, p.Migration.ID, p.Phase, g))(s.T)
	}
	return p
}

// takeBack cancels, as an operator, a move of a shared volume while all its guests are untouched.
func (s *site) takeBack(id string) {
	t := s.T
	t.Helper()
	p := s.bring(expect.Value(s.Store.Pauses.Cancel(t.Context(), store.Call{}, id, nil))(t), workflow.PauseRestored)
	s.finishShared(expect.Value(s.Store.Pauses.Resume(t.Context(), store.Call{}, p.Migration.ID))(t))
}

// bringOver takes such a move to its end like its own loop, with all guests paused.
func (s *site) bringOver(id string) {
	t := s.T
	t.Helper()
	ctx, call := t.Context(), store.Call{}
	s.bring(expect.Value(s.Store.Pauses.Get(ctx, id))(t), workflow.PauseChecked)
	s.bring(expect.Value(s.Store.Pauses.Suspend(ctx, call, id))(t), workflow.PauseSuspended)
	s.bring(expect.Value(s.Store.Pauses.Save(ctx, call, id))(t), workflow.PauseSaved)
	dst := expect.Value(s.Store.Pauses.Copy(ctx, call, id))(t).Migration.Dst
	dst.Path = "/" + dst.Pool + "/" + dst.Name
	s.bring(expect.Value(s.Store.Pauses.Flip(ctx, call, id, dst))(t), workflow.PauseReady)
	s.finishShared(s.bring(expect.Value(s.Store.Pauses.Resume(ctx, call, id))(t), workflow.PauseRestored))
}

// finishShared ends a move with resumed guests, after the other end of the move is removed.
func (s *site) finishShared(p workflow.Pause) {
	t := s.T
	t.Helper()
	expect.Value(s.Store.Pauses.SetCopy(t.Context(), store.Call{}, p.Migration.ID, p.Phase, 0, "", nil))(t)
	expect.Value(s.Store.Pauses.Finish(t.Context(), store.Call{}, p.Migration.ID))(t)
}

// A registry that crashes while it begins such a move finds it by the id that follows from drain
// and volume. A stopped drain still records the end of the move.
func TestADrainFollowsASharedVolumeToItsEndAcrossRestartsAndAStop(t *testing.T) {
	for _, every := range []time.Duration{300 * time.Millisecond, 1700 * time.Millisecond, 9 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			bubble(t, func(s *site) {
				t := s.T
				s.share()
				id := s.drainShared(api.PoolDrain{PauseAll: true}, protocol.Own())
				for range 6 {
					relaytest.Pass(every)
					s.restart()
				}
				relaytest.Pass(time.Minute)
				s.want(id, "running: shared moving, v0 moved")
				s.set(id, api.DrainStopped)
				s.restart()
				relaytest.Pass(time.Minute)
				s.want(id, "stopped: shared moving, v0 moved")
				s.bringOver(expect.Value(s.Store.Drains.Get(t.Context(), id))(t).Volumes[0].MigrationID)
				relaytest.Pass(5 * time.Second)
				s.want(id, "stopped: shared moved, v0 moved")
				if moves := s.moves(); moves["shared"] != 1 || moves["v0"] != 1 {
					t.Errorf("migrations: %v", moves)
				}
			})
		})
	}
}

func TestASharedVolumeWaitsForTheHostOfItsGuests(t *testing.T) {
	bubble(t, func(s *site) {
		s.share()
		s.hosts["a"].Away()
		relaytest.Pass(time.Minute)
		id := s.drainShared(api.PoolDrain{PauseAll: true}, protocol.Own())
		relaytest.Pass(2 * time.Minute)
		s.want(id, "running: shared pending hypervisor_unavailable, v0 pending")
		s.hosts["a"].Start()
		relaytest.Pass(2 * time.Minute)
		s.want(id, "running: shared moving, v0 moved")
	})
}

// The second volume waits, and is not skipped, because the first move has locked its instances.
func TestTwoVolumesOfTheSameInstancesMoveOneAfterTheOther(t *testing.T) {
	bubble(t, func(s *site) {
		s.share()
		s.give("other", "gold", "vdc", "g1", "g2")
		id := s.drainShared(api.PoolDrain{PauseAll: true}, protocol.Own())
		relaytest.Pass(time.Minute)
		d := expect.Value(s.Store.Drains.Get(s.T.Context(), id))(s.T)
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

// A guest is locked while one of its volumes moves with all guests paused. Its other volume, which
// moves by itself, waits, and its host is not asked: it sees the guest stop and return, and may
// give any answer.
func TestTheOwnVolumeOfAPausedGuestWaitsForItsTurn(t *testing.T) {
	bubble(t, func(s *site) {
		s.share()
		s.give("single", "", "vdc", "g1")
		s.hosts["a"].refuses("single", api.CodeInstanceBusy) // if it is asked before the other move begins
		id := s.drainShared(api.PoolDrain{PauseAll: true}, protocol.Own())
		relaytest.Pass(1500 * time.Millisecond)
		s.hosts["a"].refuses("single", api.CodeChainChanged)
		relaytest.Pass(10 * time.Minute)
		s.wantVolume(id, "shared", api.DrainVolumeMoving)
		s.wantVolume(id, "single", api.DrainVolumePending)
		s.hosts["a"].refusesNothing()
		s.bringOver(expect.Value(s.Store.Drains.Get(s.T.Context(), id))(s.T).Volumes[0].MigrationID)
		s.until(id)
		s.want(id, "done: shared moved, single moved, v0 moved")
	})
}

// wantVolume requires the state of a volume of a drain.
func (s *site) wantVolume(id, name, state string) {
	s.T.Helper()
	d := expect.Value(s.Store.Drains.Get(s.T.Context(), id))(s.T)
	for _, v := range d.Volumes {
		if v.VolumeName == name && v.State != state {
			s.T.Errorf("volume %s is %s, want %s (%v)", name, v.State, state, v.Error)
		}
	}
}

// Moves that the registry leads never drop bitmaps.
func TestADrainLosesDirtyBitmapsOfVolumesOfOneInstanceIfThatIsAskedFor(t *testing.T) {
	bubble(t, func(s *site) {
		t := s.T
		s.share()
		for _, host := range []string{storetest.HostA, storetest.HostB} {
			s.Relay.Announced(host, protocol.Own())
		}
		id := s.drainShared(api.PoolDrain{PauseAll: true, Checkpoints: api.CheckpointsDrop}, protocol.Own())
		relaytest.Pass(time.Minute)
		s.want(id, "running: shared moving, v0 moved")
		targets := s.hosts["a"].targets()
		if len(targets) != 1 {
			t.Errorf("the host was asked for %+v", targets)
		}
		for target := range targets {
			if target.Checkpoints != api.CheckpointsDrop {
				t.Errorf("v0 is moved by %+v", target)
			}
		}
		d := expect.Value(s.Store.Drains.Get(t.Context(), id))(t)
		p := expect.Value(s.Store.Pauses.Get(t.Context(), d.Volumes[0].MigrationID))(t)
		if p.Request.Checkpoints != "" || d.Checkpoints != api.CheckpointsDrop {
			t.Errorf("shared is moved by %+v, for %+v", p.Request, d)
		}
	})
}

func TestADrainMovesSharedVolumesInOneWayOnly(t *testing.T) {
	bubble(t, func(s *site) {
		_, err := s.Store.Drains.Create(s.T.Context(), store.Call{}, "fast", api.PoolDrain{ToPool: "slow", LiveShared: true, PauseAll: true})
		if api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("both ways at once: %v", err)
		}
	})
}
