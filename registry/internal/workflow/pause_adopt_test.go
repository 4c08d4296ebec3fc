// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// lostMove is the id of a move that only hosts know.
var lostMove = id(migrationKind, 70)

// savedAt returns a host's report of an instance of the lost move.
func savedAt(instance string, l api.Location) []api.SavedInstance {
	return []api.SavedInstance{{InstanceID: instance, InstanceName: "it", VolumeID: disk, Location: l, Asleep: true}}
}

func TestALostMoveIsTakenOnToBeEndedAtSrc(t *testing.T) {
	s := newPauseSite(t)
	saved := map[string][]api.SavedInstance{hostA: savedAt(app, at("/nfs/disk")), hostB: {}}
	p := must(s.Pauses.Adopt(t.Context(), nobody, lostMove, saved, bothHere))(t)
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
	wantCode(t, second(s.Pauses.Adopt(t.Context(), nobody, lostMove, saved, bothHere)), api.CodeConflict, "known")
	awake(t, s, p)
	if p = must(s.Pauses.Finish(t.Context(), nobody, lostMove))(t); p.Migration.State != api.MigrationCancelled || p.Migration.Error == nil {
		t.Errorf("migration = %+v", p.Migration)
	}
	wantLocks(t, s, map[string]string{})
	if v := must(s.Volumes.Get(t.Context(), disk, everyone))(t); v.Location.Path != "/nfs/disk" || v.MigrationID != "" {
		t.Errorf("volume = %+v", v)
	}
}

// An adopted move does not know when it stopped its guests. A guest that another program has
// resumed counts as resumed since then.
func TestAGuestOfALostMoveThatIsResumedByHandBarsTheOthers(t *testing.T) {
	s := newPauseSite(t)
	for _, state := range []api.InstanceState{api.InstanceStopped, api.InstanceRunning} {
		if state == api.InstanceRunning {
			asleep := func(instance string) []api.SavedInstance {
				saved := savedAt(instance, at("/nfs/disk"))
				saved[0].AtRest = true
				return saved
			}
			must(s.Pauses.Adopt(t.Context(), nobody, lostMove, map[string][]api.SavedInstance{hostA: asleep(app), hostB: asleep(db)}, bothHere))(t)
		}
		runs(t, s, hostA, "a", app, state)
	}
	p := must(s.Pauses.Get(t.Context(), lostMove))(t)
	for _, g := range p.Instances {
		if err := p.memoryBarred(g, api.PermitRestore, s.Now()); (err != nil) != (g.ID == db) {
			t.Errorf("instance %s: %v; app has run on and db has not", g.Name, err)
		}
	}
}

// A guest to be restored at dst proves that the volume was moved. Guests that are still saved are
// restored there too, but not from their memory if another guest has run.
func TestALostMoveThatHadMovedItsVolumeIsTakenOnToBeEndedAtDst(t *testing.T) {
	for name, tc := range map[string]struct {
		dbRan bool
		at    api.Location
	}{
		"at a path, with a guest that runs there":   {true, at("/san/disk")},
		"in a pool, with a guest that stands still": {false, api.Location{Pool: "san", Name: "d.raw", Path: "/san/d.raw", Format: api.FormatRaw, SizeBytes: at("").SizeBytes}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPauseSite(t)
			saved := map[string][]api.SavedInstance{hostA: savedAt(app, at("/nfs/disk")), hostB: savedAt(db, tc.at)}
			saved[hostA][0].AtRest, saved[hostB][0].Asleep, saved[hostB][0].AtRest = true, !tc.dbRan, !tc.dbRan
			err := unchanged(t, s, func() error { return second(s.Pauses.Adopt(t.Context(), nobody, lostMove, saved, bothHere)) })
			wantCode(t, err, api.CodeNeedsOperator, "`volferryctl migration complete "+lostMove+"`")
			p := must(s.Pauses.AdoptMoved(t.Context(), nobody, lostMove, saved, bothHere))(t)
			if m := p.Migration; m.State != api.MigrationCompleting || p.Phase != PauseRestoring || m.Dst.Path != tc.at.Path || p.DropEnd != "" || len(p.Instances) != 2 {
				t.Errorf("move = %+v", p)
			}
			for _, g := range p.Instances {
				if err := p.memoryBarred(g, api.PermitRestore, s.Now()); (err != nil) != (tc.dbRan && g.ID == app) {
					t.Errorf("instance %s: %v", g.Name, err)
				}
			}
			v := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
			if v.Location.Path != tc.at.Path || v.Attachments[0].Location.Path != tc.at.Path || v.Generation != 2 {
				t.Errorf("volume = %+v", v)
			}
			wantLocks(t, s, map[string]string{app: lostMove, db: lostMove})
			wantCode(t, second(s.Pauses.Cancel(t.Context(), nobody, lostMove, nil)), api.CodePastPointOfNoReturn, "")
			if tc.dbRan {
				return
			}
			awake(t, s, p)
			if p = must(s.Pauses.Finish(t.Context(), nobody, lostMove))(t); p.Migration.State != api.MigrationCompleted || p.Migration.Error != nil {
				t.Errorf("migration = %+v", p.Migration)
			}
			wantLocks(t, s, map[string]string{})
		})
	}
}

func TestLostMovesThatAreNotEndedAtDst(t *testing.T) {
	src, dst := at("/nfs/disk"), at("/san/disk")
	moved := savedAt(db, dst)
	moved[0].Asleep, moved[0].MovedTo = false, "/nfs/again"
	for name, tc := range map[string]struct {
		saved map[string][]api.SavedInstance
		code  api.Code
		text  string
	}{
		"nobody was to be woken at dst":   {map[string][]api.SavedInstance{hostA: savedAt(app, src), hostB: savedAt(db, src)}, api.CodeStateForbidden, "`volferryctl migration cancel " + lostMove + "`"},
		"the volume has moved on since":   {map[string][]api.SavedInstance{hostA: savedAt(app, src), hostB: moved}, api.CodeChainChanged, "/nfs/again"},
		"the hosts do not agree":          {map[string][]api.SavedInstance{hostA: savedAt(app, at("/san/other")), hostB: savedAt(db, dst)}, api.CodeChainChanged, "/san/other"},
		"of two volumes":                  {map[string][]api.SavedInstance{hostA: savedAt(app, src), hostB: {{InstanceID: db, VolumeID: lostMove, Location: dst}}}, api.CodeChainChanged, lostMove},
		"in no pool that both hosts have": {map[string][]api.SavedInstance{hostA: savedAt(app, src), hostB: savedAt(db, at("/local/disk"))}, api.CodeNoCapablePool, "/local/disk"},
		"a host does not say":             {map[string][]api.SavedInstance{hostB: savedAt(db, dst)}, api.CodeHypervisorUnavailable, "host a"},
		"nobody was saved":                {map[string][]api.SavedInstance{hostA: {}, hostB: {}}, api.CodeNotFound, lostMove},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPauseSite(t)
			err := unchanged(t, s, func() error { return second(s.Pauses.AdoptMoved(t.Context(), nobody, lostMove, tc.saved, bothHere)) })
			wantCode(t, err, tc.code, tc.text)
		})
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
		"a host has not come back":  {func(t *testing.T, s *Store) { must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t) }, here, bothHere, api.CodeRegistryUnavailable, "host a"},
		"the volume is being moved": {func(t *testing.T, s *Store) { must(s.Pauses.Register(t.Context(), nobody, "disk", toSAN, bothHere))(t) }, here, bothHere, api.CodeMigrationActive, ""},
		"an operator has locked one": {func(t *testing.T, s *Store) {
			must(s.Instances.Lock(t.Context(), nobody, db, api.InstanceLock{Reason: "audit"}))(t)
		}, here, bothHere, api.CodeInstanceLocked, "audit"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPauseSite(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			err := unchanged(t, s, func() error { return second(s.Pauses.Adopt(t.Context(), nobody, lostMove, tc.saved, tc.present)) })
			wantCode(t, err, tc.code, tc.text)
		})
	}
}
