// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// lostMove is the id of a move that only hosts know.
var lostMove = id(migrationKind, 70)

// savedAt is what a host says of an instance of it.
func savedAt(instance string, l api.Location) []api.SavedInstance {
	return []api.SavedInstance{{InstanceID: instance, InstanceName: "it", VolumeID: disk, Location: l, Asleep: true}}
}

func TestALostMoveIsTakenOnToBeEndedAtSrc(t *testing.T) {
	s := newPauseSite(t)
	saved := map[string][]api.SavedInstance{hostA: savedAt(app, at("/nfs/disk")), hostB: {}}
	p := must(s.AdoptPause(t.Context(), nobody, lostMove, saved, bothHere))(t)
	m := p.Migration
	if m.ID != lostMove || p.Phase != PauseCancelling || m.State != api.MigrationCancelling || m.Method != api.MethodSave || p.DropEnd != "" || len(p.Instances) != 2 {
		t.Errorf("move = %+v", p)
	}
	for _, g := range p.Instances {
		if g.State != PauseSaved {
			t.Errorf("instance %s is %s, and has to be woken whether it was saved or not", g.Name, g.State)
		}
	}
	wantLocks(t, s, map[string]string{app: lostMove, db: lostMove})
	wantCode(t, second(s.AdoptPause(t.Context(), nobody, lostMove, saved, bothHere)), api.CodeConflict, "known")
	awake(t, s, p)
	if p = must(s.FinishPause(t.Context(), nobody, lostMove))(t); p.Migration.State != api.MigrationCancelled || p.Migration.Error == nil {
		t.Errorf("migration = %+v", p.Migration)
	}
	wantLocks(t, s, map[string]string{})
	if v := must(s.Volume(t.Context(), disk, everyone))(t); v.Location.Path != "/nfs/disk" || v.MigrationID != "" {
		t.Errorf("volume = %+v", v)
	}
}

// A move that was adopted does not know when it stopped its guests. One that runs without
// its word has run on since then all the same.
func TestAGuestOfALostMoveThatIsResumedByHandBarsTheOthers(t *testing.T) {
	s := newPauseSite(t)
	for _, state := range []api.InstanceState{api.InstanceStopped, api.InstanceRunning} {
		if state == api.InstanceRunning {
			asleep := func(instance string) []api.SavedInstance {
				saved := savedAt(instance, at("/nfs/disk"))
				saved[0].AtRest = true
				return saved
			}
			must(s.AdoptPause(t.Context(), nobody, lostMove, map[string][]api.SavedInstance{hostA: asleep(app), hostB: asleep(db)}, bothHere))(t)
		}
		runs(t, s, hostA, "a", app, state)
	}
	p := must(s.Pause(t.Context(), lostMove))(t)
	for _, g := range p.Instances {
		if err := p.memoryBarred(g, api.PermitRestore, s.Now()); (err != nil) != (g.ID == db) {
			t.Errorf("instance %s: %v; app has run on and db has not", g.Name, err)
		}
	}
}

func TestLostMovesThatAreLeftAsTheyAre(t *testing.T) {
	src := at("/nfs/disk")
	here := map[string][]api.SavedInstance{hostA: savedAt(app, src), hostB: {}}
	for name, tc := range map[string]struct {
		before  func(*testing.T, *Store)
		saved   map[string][]api.SavedInstance
		present []string
		code    api.Code
		text    string
	}{
		"a guest was woken at dst":  {nil, map[string][]api.SavedInstance{hostA: savedAt(app, src), hostB: savedAt(db, at("/san/disk"))}, bothHere, api.CodeNeedsOperator, "/san/disk"},
		"a host does not say":       {nil, map[string][]api.SavedInstance{hostA: savedAt(app, src)}, bothHere, api.CodeHypervisorUnavailable, "host b"},
		"a host is not there":       {nil, here, []string{hostA}, api.CodeHypervisorUnavailable, "host b"},
		"nobody was saved":          {nil, map[string][]api.SavedInstance{hostA: {}, hostB: {}}, bothHere, api.CodeNotFound, lostMove},
		"a host has not come back":  {func(t *testing.T, s *Store) { must(s.AcceptRestore(t.Context(), nobody, acceptedBlind))(t) }, here, bothHere, api.CodeRegistryUnavailable, "host a"},
		"the volume is being moved": {func(t *testing.T, s *Store) { must(s.RegisterPause(t.Context(), nobody, "disk", toSAN, bothHere))(t) }, here, bothHere, api.CodeMigrationActive, ""},
		"an operator has locked one": {func(t *testing.T, s *Store) {
			must(s.LockInstance(t.Context(), nobody, db, api.InstanceLock{Reason: "audit"}))(t)
		}, here, bothHere, api.CodeInstanceLocked, "audit"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPauseSite(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			err := unchanged(t, s, func() error { return second(s.AdoptPause(t.Context(), nobody, lostMove, tc.saved, tc.present)) })
			wantCode(t, err, tc.code, tc.text)
		})
	}
}
