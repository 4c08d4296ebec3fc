// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

var (
	liveToSAN = api.MigrationTarget{ToPool: "san", DeleteSource: true}
	lost      = api.Errorf(api.CodeBitmapLost, "a guest was started anew")
)

// newLive returns a live move of disk to san, with guests on hosts a and b, in phase checking.
func newLive(t *testing.T) (*Store, Pause) {
	t.Helper()
	s := newPauseSite(t)
	m := must(s.LiveMoves.Register(t.Context(), nobody, "disk", liveToSAN, bothHere))(t)
	return s, must(s.Pauses.Get(t.Context(), m.ID))(t)
}

// hostDoes makes a host complete its next call.
func hostDoes(t *testing.T, s *Store, p Pause, host string) Pause {
	t.Helper()
	c, left := p.LiveNext(must(p.liveHost(host))(t))
	if !left {
		t.Fatalf("in phase %s nothing is wanted of host %s", p.Phase, host)
	}
	must(s.LiveMoves.Ask(t.Context(), nobody, p.Migration.ID, p.Phase, host, c))(t)
	return must(s.LiveMoves.Answer(t.Context(), nobody, p.Migration.ID, host, c, LiveAnswer{Done: true}))(t)
}

func hostsDo(t *testing.T, s *Store, p Pause) Pause {
	t.Helper()
	for _, h := range p.Live.Hosts {
		if _, left := p.LiveNext(h); left {
			p = hostDoes(t, s, p, h.ID)
		}
	}
	return p
}

// liveAt takes a move from its beginning to a phase, through the phases before it.
func liveAt(t *testing.T, s *Store, p Pause, phase PausePhase) Pause {
	t.Helper()
	for range 20 {
		if p.Phase == phase {
			return p
		}
		id, to := p.Migration.ID, map[PausePhase]PausePhase{
			PauseChecking: PauseMaking, PauseTracking: PauseCopying, PauseSwapping: PauseCopying, PauseCopying: PauseSwapping, PauseAgain: PauseTracking, PauseLast: PauseSaving,
		}[p.Phase]
		if p.Phase == PauseCopying && p.Live.Round > 0 {
			to = PauseSuspending
		}
		p = hostsDo(t, s, p)
		switch p.Phase {
		case PauseMaking:
			p = must(s.LiveMoves.Made(t.Context(), nobody, id, made(p)))(t)
		case PauseSuspending:
			bring(t, s, p, PauseSuspended)
			p = must(s.Pauses.Save(t.Context(), nobody, id))(t)
		case PauseSaving:
			bring(t, s, p, PauseSaved)
			p = must(s.Pauses.Flip(t.Context(), nobody, id, p.Migration.Dst))(t)
		default:
			p = must(s.LiveMoves.Pass(t.Context(), nobody, id, p.Phase, to))(t)
		}
	}
	t.Fatalf("the move does not get to %s", phase)
	return p
}

// reached describes the steps of a pause.
func reached(steps []api.PauseStep) string {
	var all []string
	for _, step := range steps {
		all = append(all, strings.Join(strings.Fields(step.Reached+" "+step.Instance+" "+step.Host), " "))
	}
	return strings.Join(all, ", ")
}

func TestAMoveWhileGuestsWriteGoesThroughItsPhases(t *testing.T) {
	s, p := newLive(t)
	m := p.Migration
	if m.Method != api.MethodLive || m.State != api.MigrationStarting || m.Phase != "checking" || p.Live.UnitBytes != api.LiveUnitBytes(size) || len(p.Live.Hosts) != 2 {
		t.Errorf("move = %+v", p)
	}
	wantLocks(t, s, map[string]string{app: m.ID, db: m.ID})
	for _, step := range []struct {
		phase PausePhase
		state api.MigrationState
	}{
		{PauseMaking, api.MigrationStarting},
		{PauseTracking, api.MigrationCopying},
		{PauseCopying, api.MigrationCopying},
		{PauseSwapping, api.MigrationCopying},
		{PauseSuspending, api.MigrationCompleting},
		{PauseLast, api.MigrationCompleting},
		{PauseSaving, api.MigrationCompleting},
		{PauseRestoring, api.MigrationCompleting},
	} {
		if p = liveAt(t, s, p, step.phase); p.Migration.State != step.state || p.Migration.Phase != string(step.phase) {
			t.Errorf("in %s the migration is %s %s", step.phase, p.Migration.State, p.Migration.Phase)
		}
	}
	if steps := must(s.Pauses.Steps(t.Context(), m.ID))(t); reached(steps) != "suspending, suspended app a, suspended db b, last, read a, read b, saving, last a, last b, saved app a, saved db b, restoring" {
		t.Errorf("in the pause it has noted %s", reached(steps))
	}
	if v := must(s.Volumes.Get(t.Context(), disk, everyone))(t); v.Location.Path != made(p).Path || v.Generation != 2 {
		t.Errorf("volume = %+v", v)
	}
	p = hostsDo(t, s, p)
	awake(t, s, p)
	must(s.Pauses.SetCopy(t.Context(), nobody, m.ID, p.Phase, 0, "", nil))(t)
	if p = must(s.Pauses.Finish(t.Context(), nobody, m.ID))(t); p.Migration.State != api.MigrationCompleted {
		t.Errorf("move = %+v", p)
	}
	wantLocks(t, s, map[string]string{})
	wantFree(t, s, at("/nfs/disk"))
}

// R1, R3 and R4 of package sharedmove.
func TestNoBarrierIsPassedBeforeAllHostsHaveReachedIt(t *testing.T) {
	for phase, to := range map[PausePhase]PausePhase{
		PauseChecking: PauseMaking, PauseTracking: PauseCopying, PauseCopying: PauseSwapping, PauseSwapping: PauseCopying, PauseLast: PauseSaving,
	} {
		t.Run(string(phase), func(t *testing.T) {
			s, p := newLive(t)
			p = liveAt(t, s, p, phase)
			refused := func(what string) {
				t.Helper()
				_, err := s.LiveMoves.Pass(t.Context(), nobody, p.Migration.ID, phase, to)
				wantCode(t, err, api.CodeConflict, "not all hosts")
				if t.Failed() {
					t.Fatal(what)
				}
			}
			refused("nobody was asked")
			p = hostDoes(t, s, p, hostA)
			refused("one was asked")
			c, _ := p.LiveNext(must(p.liveHost(hostB))(t))
			must(s.LiveMoves.Ask(t.Context(), nobody, p.Migration.ID, phase, hostB, c))(t)
			refused("the other one is at it")
			must(s.LiveMoves.Answer(t.Context(), nobody, p.Migration.ID, hostB, c, LiveAnswer{}))(t)
			refused("the other one has failed")
			p = hostDoes(t, s, must(s.Pauses.Get(t.Context(), p.Migration.ID))(t), hostB)
			if h := must(p.liveHost(hostB))(t); h.Call.Attempt != 1 {
				t.Errorf("the second time is attempt %d", h.Call.Attempt)
			}
			if p = must(s.LiveMoves.Pass(t.Context(), nobody, p.Migration.ID, phase, to))(t); p.Phase != to {
				t.Errorf("phase = %s", p.Phase)
			}
		})
	}
}

// R6: the last call must have ended.
func TestAHostThatMayStillCopyIsAskedForNothingAndKeepsDst(t *testing.T) {
	for name, lead := range map[string]func(*testing.T, *Store, Pause) Pause{
		"again": func(t *testing.T, s *Store, p Pause) Pause {
			t.Helper()
			return must(s.LiveMoves.Again(t.Context(), nobody, p.Migration.ID, p.Phase, lost))(t)
		},
		"cancelling": func(t *testing.T, s *Store, p Pause) Pause {
			t.Helper()
			return must(s.Pauses.Cancel(t.Context(), nobody, p.Migration.ID, lost))(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := newLive(t)
			p = hostDoes(t, s, liveAt(t, s, p, PauseCopying), hostA)
			id := p.Migration.ID
			copying, _ := p.LiveNext(must(p.liveHost(hostB))(t))
			must(s.LiveMoves.Ask(t.Context(), nobody, id, PauseCopying, hostB, copying))(t)
			p = bring(t, s, lead(t, s, p), PauseRestored)

			p = hostDoes(t, s, p, hostA)
			next, _ := p.LiveNext(must(p.liveHost(hostB))(t))
			_, err := s.LiveMoves.Ask(t.Context(), nobody, id, p.Phase, hostB, next)
			wantCode(t, err, api.CodeConflict, "may still be doing")
			if name == "again" {
				_, err = s.LiveMoves.Pass(t.Context(), nobody, id, p.Phase, PauseTracking)
			} else {
				_, err = s.Pauses.SetCopy(t.Context(), nobody, id, p.Phase, 0, "", nil)
			}
			wantCode(t, err, api.CodeConflict, "not all hosts")

			must(s.LiveMoves.Answer(t.Context(), nobody, id, hostB, copying, LiveAnswer{}))(t)
			p = hostDoes(t, s, must(s.Pauses.Get(t.Context(), id))(t), hostB)
			if name == "again" {
				p = must(s.LiveMoves.Pass(t.Context(), nobody, id, p.Phase, PauseTracking))(t)
				if p.Live.Generation != 2 || p.Live.Round != 0 || p.Instances[0].State != PauseChecked {
					t.Errorf("the next generation is %+v", p)
				}
				wantLocks(t, s, map[string]string{app: id, db: id})
				return
			}
			must(s.Pauses.SetCopy(t.Context(), nobody, id, p.Phase, 0, "", nil))(t)
			wantLocks(t, s, map[string]string{})
		})
	}
}

// R7, and there is only one flip.
func TestTheVolumeMovesOnlyWhenAllAreSavedAndAllIsCopied(t *testing.T) {
	s, p := newLive(t)
	p = liveAt(t, s, p, PauseSaving)
	flip := func() error { return second(s.Pauses.Flip(t.Context(), nobody, p.Migration.ID, p.Migration.Dst)) }
	wantCode(t, flip(), api.CodeConflict, "not all hosts")
	p = hostsDo(t, s, p)
	wantCode(t, flip(), api.CodeConflict, "not saved")
	bring(t, s, p, PauseSaved)
	if err := flip(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, flip(), api.CodeConflict, "restoring")
	wantCode(t, second(s.Pauses.Cancel(t.Context(), nobody, p.Migration.ID, nil)), api.CodePastPointOfNoReturn, "")
	wantCode(t, second(s.LiveMoves.Again(t.Context(), nobody, p.Migration.ID, PauseRestoring, lost)), api.CodeConflict, "cannot begin again")
}

func TestGenerationsThatComeToNothingEndTheMove(t *testing.T) {
	for name, phases := range map[string][]PausePhase{
		"no whole copy":         {PauseTracking, PauseCopying, PauseTracking, PauseCancelling},
		"a whole copy between":  {PauseTracking, PauseCopying, PauseSwapping, PauseTracking, PauseTracking, PauseCancelling},
		"pauses are called off": {PauseLast, PauseSuspending, PauseLast, PauseCancelling},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := newLive(t)
			end := phases[len(phases)-1]
			for _, phase := range phases[:len(phases)-1] {
				if p.Phase == PauseAgain {
					p = bring(t, s, p, PauseRestored)
				}
				p = liveAt(t, s, p, phase)
				if p.Phase == PauseLast {
					p = must(s.LiveMoves.Again(t.Context(), nobody, p.Migration.ID, phase, lost))(t)
					if p.Phase == PauseAgain {
						p = bring(t, s, p, PauseReady)
						p = must(s.Pauses.Resume(t.Context(), nobody, p.Migration.ID))(t)
					}
					continue
				}
				p = must(s.LiveMoves.Again(t.Context(), nobody, p.Migration.ID, phase, lost))(t)
			}
			if p.Phase != end || p.Migration.Error == nil || p.Migration.Error.Code != api.CodeBitmapLost {
				t.Errorf("after %v it is %s: %v", phases, p.Phase, p.Migration.Error)
			}
		})
	}
}

// A cancel before the next generation must not lock guests that were already resumed for it.
func TestACancelBeforeTheNextGenerationUnlocksWhatRunsOn(t *testing.T) {
	s, p := newLive(t)
	p = must(s.LiveMoves.Again(t.Context(), nobody, p.Migration.ID, liveAt(t, s, p, PauseTracking).Phase, lost))(t)
	at := slices.IndexFunc(p.Instances, func(g PauseInstance) bool { return g.ID == app })
	p.Instances[at].State = PauseRestored
	must(s.Pauses.SetInstance(t.Context(), nobody, p.Migration.ID, p.Phase, p.Instances[at]))(t)
	wantLocks(t, s, map[string]string{app: p.Migration.ID, db: p.Migration.ID})
	must(s.Pauses.Cancel(t.Context(), nobody, p.Migration.ID, nil))(t)
	wantLocks(t, s, map[string]string{db: p.Migration.ID})
}

func TestMovesWhileGuestsWriteThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*testing.T, *Store)
		edit   func(*api.MigrationTarget)
		there  []string
		code   api.Code
		text   string
	}{
		"as qcow2":              {edit: func(in *api.MigrationTarget) { in.ToFormat = "qcow2" }, code: api.CodeUnsupportedDisk, text: "raw"},
		"an odd size":           {before: rawSQL("UPDATE locations SET size_bytes = size_bytes + 512 WHERE volume_id = '" + disk + "'"), code: api.CodeUnsupportedDisk, text: "multiple of 4096"},
		"by pause_all":          {edit: func(in *api.MigrationTarget) { in.PauseAll = true }, code: api.CodeInvalidArgument, text: "no method live"},
		"an external copy":      {edit: func(in *api.MigrationTarget) { in.ExternalCopy = true }, code: api.CodeInvalidArgument, text: "external"},
		"a host is not there":   {there: []string{hostA}, code: api.CodeHypervisorUnavailable, text: "while its guests write: instance db on host b"},
		"an instance is locked": {before: locked(db), code: api.CodeInstanceLocked, text: "instance db on host b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPauseSite(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			in := liveToSAN
			if tc.edit != nil {
				tc.edit(&in)
			}
			if tc.there == nil {
				tc.there = bothHere
			}
			err := unchanged(t, s, func() error { return second(s.LiveMoves.Register(t.Context(), nobody, "disk", in, tc.there)) })
			wantCode(t, err, tc.code, tc.text)
		})
	}
}

func TestSharesAreOfWholeUnitsAndMakeTheVolume(t *testing.T) {
	for _, tc := range []struct {
		bytes int64
		hosts int
		want  []int64
	}{
		{10 * 64 << 10, 2, []int64{5 * 64 << 10, 10 * 64 << 10}},
		{3*64<<10 - 4096, 2, []int64{1 * 64 << 10, 3*64<<10 - 4096}},
		{4096, 3, []int64{0, 0, 4096}},
	} {
		if got := shares(tc.bytes, 64<<10, tc.hosts); !slices.Equal(got, tc.want) {
			t.Errorf("%d bytes for %d hosts end at %v, want %v", tc.bytes, tc.hosts, got, tc.want)
		}
	}
}

func TestChangesOfMovesThatTheRegistryLeadsAreAnnounced(t *testing.T) {
	s := newPauseSite(t)
	announced := func(what string, change func()) {
		t.Helper()
		next := s.Pauses.Changed()
		change()
		select {
		case <-next:
		default:
			t.Errorf("%s is not announced", what)
		}
	}
	var m api.Migration
	announced("a new move", func() { m = must(s.LiveMoves.Register(t.Context(), nobody, "disk", liveToSAN, bothHere))(t) })
	p := must(s.Pauses.Get(t.Context(), m.ID))(t)
	announced("what a host has done", func() { hostDoes(t, s, p, hostA) })
	announced("a cancel", func() { must(s.Pauses.Cancel(t.Context(), nobody, m.ID, nil))(t) })
}
