// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func TestEveryVolumeOfEveryHostIsMovedAndNeverMoreAtOnceThanAskedFor(t *testing.T) {
	for _, parallel := range []int{1, 3, 64} {
		t.Run(fmt.Sprint(parallel), func(t *testing.T) {
			bubble(t, func(s *site) {
				s.volumes(6, "a")
				id := s.drain(parallel)
				s.until(id)
				s.movedOnce(6)
				if got, want := s.hosts["a"].mostAtOnce(), min(parallel, 6); got != want {
					s.T.Errorf("%d moved at once, want %d", got, want)
				}
				want := map[api.MigrationTarget]bool{{ToPool: "slow", CopyOptions: api.CopyOptions{BandwidthBytesPerSecond: 1000, Verify: api.VerifyFull}, DeleteSource: true}: true}
				if diff := cmp.Diff(want, s.hosts["a"].targets()); diff != "" {
					s.T.Errorf("what was asked for (-want +got):\n%s", diff)
				}
			})
		})
	}
	bubble(t, func(s *site) {
		s.volumes(6, "a", "b")
		id := s.drain(2)
		s.until(id)
		s.movedOnce(6)
		if s.hosts["a"].mostAtOnce()+s.hosts["b"].mostAtOnce() < 2 {
			s.T.Error("the hosts did not work at the same time")
		}
	})
}

func TestEmptyPoolIsDrainedAtOnce(t *testing.T) {
	bubble(t, func(s *site) {
		id := s.drain(1)
		relaytest.Pass(2 * time.Second)
		s.want(id, "done: ")
	})
}

// The registry is restarted again and again, at every moment of a move.
func TestRestartsMoveNothingTwiceAndLoseNothing(t *testing.T) {
	for _, every := range []time.Duration{300 * time.Millisecond, 1700 * time.Millisecond, 9 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			bubble(t, func(s *site) {
				s.volumes(5, "a", "b")
				id := s.drain(2)
				for range 12 {
					relaytest.Pass(every)
					s.restart()
				}
				s.until(id)
				s.movedOnce(5)
				s.want(id, "done: v0 moved, v1 moved, v2 moved, v3 moved, v4 moved")
			})
		})
	}
}

func TestDaemonThatDiesWithATaskIsAskedForTheSame(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(2, "a")
		a := s.hosts["a"]
		a.journal.Mute = 1
		id := s.drain(1)
		relaytest.Pass(15 * time.Second) // it moved the volume and did not answer
		s.want(id, "running: v0 moving, v1 pending")
		a.Away()
		relaytest.Pass(time.Minute)
		s.want(id, "running: v0 moving, v1 pending")
		a.Start()
		s.until(id)
		s.movedOnce(2)
	})
}

func TestPausedDrainBeginsNothingAndLetsWhatMovesEnd(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(4, "a")
		id := s.drain(2)
		relaytest.Pass(5 * time.Second)
		s.set(id, api.DrainPaused)
		relaytest.Pass(2 * time.Minute)
		s.want(id, "paused: v0 moved, v1 moved, v2 pending, v3 pending")
		s.restart()
		relaytest.Pass(2 * time.Minute)
		s.want(id, "paused: v0 moved, v1 moved, v2 pending, v3 pending")
		s.set(id, api.DrainRunning)
		s.until(id)
		s.movedOnce(4)
	})
}

func TestStoppedDrainTellsHowWhatMovedThenEnded(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(3, "a")
		id := s.drain(1)
		relaytest.Pass(5 * time.Second)
		s.set(id, api.DrainStopped)
		s.restart()
		relaytest.Pass(2 * time.Minute)
		s.want(id, "stopped: v0 moved, v1 pending, v2 pending")
	})
}

func TestHostThatIsAwayIsWaitedForAndHoldsUpNobody(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(4, "b", "a")
		s.hosts["b"].Away()
		relaytest.Pass(time.Minute)
		id := s.drain(1)
		relaytest.Pass(2 * time.Minute)
		s.want(id, "running: v0 pending, v1 moved, v2 pending, v3 moved")
		s.hosts["b"].Start()
		s.until(id)
		s.movedOnce(4)
	})
}

func TestHostThatGoesAwayUnseenIsTriedAgain(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(2, "a")
		s.hosts["a"].Away() // just now: it still counts as present
		id := s.drain(1)
		relaytest.Pass(10 * time.Second)
		s.want(id, "running: v0 moving, v1 pending")
		relaytest.Pass(50 * time.Second)
		s.want(id, "running: v0 pending hypervisor_unavailable, v1 pending hypervisor_unavailable")
		s.hosts["a"].Start()
		s.until(id)
		s.movedOnce(2)
	})
}

func TestFencedHostIsWaitedFor(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(2, "a", "b")
		expect.Value(s.Store.Hosts.Fence(s.T.Context(), store.Call{}, "b", api.HostFence{Evidence: "its power is off", EvenIfUp: true}))(s.T)
		id := s.drain(2)
		relaytest.Pass(2 * time.Minute)
		s.want(id, "running: v0 moved, v1 pending")
	})
}

func TestWhatCannotBeMovedIsSkippedAndSaysWhy(t *testing.T) {
	bubble(t, func(s *site) {
		codes := []api.Code{api.CodeMultiattached, api.CodeUnsupportedDisk, api.CodePolicyDenied, api.CodeMigrationActive, api.CodeNoSpace, api.CodeInstanceLocked}
		s.volumes(len(codes)+1, "a")
		for i, code := range codes {
			s.hosts["a"].refuses(fmt.Sprint("v", i), code)
		}
		id := s.drain(1)
		s.until(id)
		s.want(id, "done: v0 skipped multiattached, v1 skipped unsupported_disk, v2 skipped policy_denied, v3 skipped migration_active, v4 skipped no_space, v5 skipped instance_locked, v6 moved")
		if diff := cmp.Diff(map[string]int{"v6": 1}, s.moves()); diff != "" {
			s.T.Errorf("migrations (-want +got):\n%s", diff)
		}
	})
}

// The error is the host's, and the other volumes are moved.
func TestAVolumeInWhosePlaceIsALinkIsSkippedInTheWordsOfItsHost(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(2, "a")
		const says = "cannot migrate volume v0: /fast/v0 leads to /etc/shadow by the symbolic link /fast/v0 in the directory of pool fast"
		s.hosts["a"].refuse["v0"] = []api.TaskAnswer{refusal(api.Errorf(api.CodePermissionDenied, says))}
		id := s.drain(1)
		s.until(id)
		s.want(id, "done: v0 skipped permission_denied, v1 moved")
		if e := expect.Value(s.Store.Drains.Get(s.T.Context(), id))(s.T).Volumes[0].Error; e == nil || e.Message != says {
			s.T.Errorf("the drain says %v", e)
		}
	})
}

func TestRefusalOfTheMomentIsNoEnd(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(2, "a")
		s.hosts["a"].refuses("v0", api.CodeInstanceBusy, api.CodeJournalUnavailable, api.CodeStaleGeneration)
		id := s.drain(1)
		relaytest.Pass(2500 * time.Millisecond)
		s.want(id, "running: v0 pending instance_busy, v1 moving")
		s.restart()
		s.until(id)
		s.movedOnce(2)
	})
}

// A migration's lock ends with it, unlike an operator's.
func TestVolumeOfAnInstanceThatAMigrationHasJustLockedIsTriedAgain(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(1, "a")
		s.hosts["a"].refuse["v0"] = []api.TaskAnswer{refusal(api.Errorf(api.CodeInstanceLocked, "migration m holds it").With("migration_id", "m"))}
		id := s.drain(1)
		relaytest.Pass(1500 * time.Millisecond)
		s.want(id, "running: v0 pending instance_locked")
		s.until(id)
		s.movedOnce(1)
	})
}

// The host accepted the request; later the registry refused its op, which had waited for another op
// of the instance.
func TestAnOpThatIsUndoneForTheMomentIsNoEnd(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(2, "a")
		s.hosts["a"].vanish["v0"] = []api.Code{api.CodeInstanceBusy, api.CodeStaleGeneration}
		id := s.drain(1)
		relaytest.Pass(5500 * time.Millisecond)
		s.want(id, "running: v0 pending instance_busy, v1 moving")
		s.restart()
		s.until(id)
		s.movedOnce(2)
	})
}

func TestVolumeThatComesMeanwhileIsTakenIn(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(1, "a")
		id := s.drain(1)
		relaytest.Pass(5 * time.Second)
		s.volume("b", "v1")
		s.until(id)
		s.movedOnce(2)
		s.want(id, "done: v0 moved, v1 moved")
	})
}

func TestMigrationThatEndsInErrorIsAFailure(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(4, "a")
		maps.Copy(s.hosts["a"].end, map[string]api.MigrationState{"v0": api.MigrationError, "v1": api.MigrationNeedsOperator})
		s.hosts["a"].vanish["v2"] = []api.Code{api.CodeNoSpace}
		id := s.drain(1)
		s.until(id)
		s.want(id, "done: v0 failed copy_mismatch, v1 failed needs_operator, v2 skipped no_space, v3 moved")
	})
}

// The text is the migration's. The commands are the registry's own: a host's commands are shown on
// that host only.
func TestADrainNamesTheCommandThatTellsOfAStandstill(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(1, "a")
		const cure = "virsh blockjob web vda --abort, then volferryctl migration complete m"
		s.hosts["a"].end["v0"] = api.MigrationNeedsOperator
		s.hosts["a"].why["v0"] = api.Errorf(api.CodeNeedsOperator, "somebody mirrors disk vda").With(api.DetailCure, cure)
		id := s.drain(1)
		s.until(id)
		v := expect.Value(s.Store.Drains.Get(s.T.Context(), id))(s.T).Volumes[0]
		expect.Code(s.T, v.Error, api.CodeNeedsOperator, "Next: volferryctl volume which v0; ")
		if strings.Contains(v.Error.Message, cure) {
			s.T.Errorf("the error has the commands of the host: %s", v.Error.Message)
		}
		expect.Code(s.T, v.Error, api.CodeNeedsOperator, "volume v0: its move stands")
		expect.Code(s.T, v.Error, api.CodeNeedsOperator, "somebody mirrors disk vda")
	})
}

// The registry only knows that the migration has ended. The drain shows the reason in the host's
// journal, word for word.
func TestFailedVolumeShowsTheReasonOfItsHost(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(1, "a")
		s.hosts["a"].end["v0"] = api.MigrationError
		id := s.drain(1)
		s.until(id)
		d, err := s.Store.Drains.Get(s.T.Context(), id)
		if err != nil || len(d.Volumes) != 1 {
			s.T.Fatalf("%+v, %v", d, err)
		}
		m, err := s.Store.Migrations.Get(s.T.Context(), d.Volumes[0].MigrationID, store.Viewer{})
		if err != nil || m.Error != nil {
			s.T.Fatalf("the registry knows by itself why: %+v, %v", m.Error, err)
		}
		if why := d.Volumes[0].Error; why == nil || why.Code != api.CodeCopyMismatch || why.Message != "the copy differs" {
			s.T.Errorf("the volume failed for %+v, want the words of its host", why)
		}
	})
}

func TestVolumeThatSomebodyElseMovesOutIsInProgressUntilItIsOut(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(2, "a")
		v := expect.Value(s.Store.Volumes.Get(s.T.Context(), "v0", store.Viewer{}))(s.T)
		out := api.MigrationRegister{
			ID: storetest.Move, VolumeID: v.ID, Host: "a", Epoch: 1, Generation: v.Generation, Dst: storetest.At("/slow/out"), Method: "offline", OpID: "x",
		}
		expect.Value(s.Store.Migrations.Register(s.T.Context(), store.Call{}, out))(s.T)
		id := s.drain(2)
		relaytest.Pass(time.Minute)
		s.want(id, "running: v0 moving, v1 moved")
		s.hosts["a"].finish(out.ID, "v0")
		s.until(id)
		s.want(id, "done: v0 moved, v1 moved")
		s.movedOnce(2)
	})
}

// Another drain of the pool tries a volume with a failed or cancelled move again, even while the
// first drain still moves others.
func TestWhatADrainGaveUpIsTriedAgainByTheNext(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(3, "a")
		s.hosts["a"].end["v0"] = api.MigrationError
		first := s.drain(1)
		relaytest.Pass(14 * time.Second)
		s.want(first, "running: v0 failed copy_mismatch, v1 moving, v2 pending")
		delete(s.hosts["a"].end, "v0")
		second := s.drain(1)
		s.until(second)
		s.want(first, "stopped: v0 failed copy_mismatch, v1 moved, v2 pending")
		s.want(second, "done: v0 moved, v1 moved, v2 moved")
		if diff := cmp.Diff(map[string]int{"v0": 2, "v1": 1, "v2": 1}, s.moves()); diff != "" {
			s.T.Errorf("migrations (-want +got):\n%s", diff)
		}
	})
}

func TestVolumeThatComesBackIsMovedAgain(t *testing.T) {
	bubble(t, func(s *site) {
		s.volumes(2, "a")
		id := s.drain(1)
		relaytest.Pass(13500 * time.Millisecond) // v1 has begun to move
		s.want(id, "running: v0 moved, v1 moving")
		v := expect.Value(s.Store.Volumes.Get(s.T.Context(), "v0", store.Viewer{}))(s.T)
		back := api.MigrationRegister{
			ID: storetest.Move, VolumeID: v.ID, Host: "a", Epoch: 1, Generation: v.Generation, Dst: storetest.At("/fast/back"), Method: "offline", OpID: "x",
		}
		expect.Value(s.Store.Migrations.Register(s.T.Context(), store.Call{}, back))(s.T)
		s.hosts["a"].finish(back.ID, "v0")
		s.until(id)
		s.want(id, "done: v0 moved, v1 moved")
		if diff := cmp.Diff(map[string]int{"v0": 3, "v1": 1}, s.moves()); diff != "" {
			s.T.Errorf("migrations (-want +got):\n%s", diff)
		}
	})
}
