// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// orphan returns a setup function that fences host a while root's migration is in the last of the
// states.
func orphan(states ...api.MigrationState) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		migrating(t, s)
		from := api.MigrationStarting
		for _, to := range states {
			must(s.Migrations.Transition(t.Context(), nobody, move, step(to, from)))(t)
			from = to
		}
		fenceA(t, s)
	}
}

func TestAFencedHostsMigrationsAreOrphanedAndGoOnAfterItIsBack(t *testing.T) {
	s := newCluster(t)
	must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t)
	must(s.Migrations.Transition(t.Context(), nobody, dataMigration().ID, step(api.MigrationCancelled, api.MigrationStarting)))(t)
	orphan(api.MigrationStarted, api.MigrationCopying)(t, s)
	m := must(s.Migrations.Get(t.Context(), move, everyone))(t)
	if m.State != api.MigrationOrphaned || m.Phase != string(api.MigrationCopying) {
		t.Errorf("migration is %s in phase %s", m.State, m.Phase)
	}
	if v := must(s.Volumes.Get(t.Context(), root, everyone))(t); v.MigrationID != move || len(v.Attachments) != 2 {
		t.Errorf("the orphan let go of its volume: %+v", v)
	}
	goOn := step(api.MigrationCopied, api.MigrationOrphaned, api.MigrationCopying)
	wantCode(t, second(s.Migrations.Transition(t.Context(), nobody, move, goOn)), api.CodeStaleEpoch, "epoch 2")
	if n := len(must(s.Migrations.All(t.Context(), "", false, everyone))(t)); n != 1 {
		t.Errorf("open migrations = %d", n)
	}

	fenceA(t, s) // again: nothing is forgotten
	must(s.Hosts.Rejoin(t.Context(), nobody, "a", api.HostRejoin{Epoch: 3}))(t)
	if m := must(s.Migrations.Get(t.Context(), move, everyone))(t); m.State != api.MigrationCopying {
		t.Errorf("migration is %s after its host is back", m.State)
	}
	if m := must(s.Migrations.Get(t.Context(), dataMigration().ID, everyone))(t); m.State != api.MigrationCancelled {
		t.Errorf("a migration that was over is %s", m.State)
	}
	goOn.Epoch = 3
	must(s.Migrations.Transition(t.Context(), nobody, move, goOn))(t)
}

func TestAbandonedMigrationKeepsTheCopyThatWasChosen(t *testing.T) {
	for name, tc := range map[string]struct {
		states []api.MigrationState
		keep   string
		end    api.MigrationState
		code   api.Code
		text   string
	}{
		"src, before anything":   {nil, api.KeepSrc, api.MigrationCancelled, api.CodeHypervisorUnavailable, "while it was starting"},
		"src, while copying":     {[]api.MigrationState{api.MigrationCopying}, api.KeepSrc, api.MigrationCancelled, api.CodeHypervisorUnavailable, "lacks what the guest wrote since the start"},
		"src, may have pivoted":  {[]api.MigrationState{api.MigrationCompleting}, api.KeepSrc, api.MigrationCancelled, api.CodePastPointOfNoReturn, "may have been switched to dst"},
		"src, nobody knew":       {[]api.MigrationState{api.MigrationNeedsOperator}, api.KeepSrc, api.MigrationCancelled, api.CodePastPointOfNoReturn, "may have been switched to dst"},
		"dst, that was copied":   {[]api.MigrationState{api.MigrationCopied}, api.KeepDst, api.MigrationCompleted, api.CodePastPointOfNoReturn, "if the guest was not switched"},
		"dst, may have pivoted":  {[]api.MigrationState{api.MigrationCompleting}, api.KeepDst, api.MigrationCompleted, api.CodePastPointOfNoReturn, "may be a corrupt filesystem"},
		"dst, of needs_operator": {[]api.MigrationState{api.MigrationNeedsOperator}, api.KeepDst, api.MigrationCompleted, api.CodePastPointOfNoReturn, "may be a corrupt filesystem"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			orphan(tc.states...)(t, s)
			m := must(s.Migrations.Abandon(t.Context(), nobody, move, api.MigrationAbandon{Keep: tc.keep, Reason: "the host burned down", EvenIfCorrupt: tc.keep == api.KeepDst}))(t)
			if m.State != tc.end || m.FinishedAt == nil {
				t.Errorf("migration = %+v", m)
			}
			wantCode(t, m.Error, tc.code, tc.text)
			wantVolume(t, s, root, api.VolumeInUse, 1)
			v := must(s.Volumes.Get(t.Context(), root, everyone))(t)
			kept, attachment, generation, free := at("/fast/root"), rootAt, int64(1), at("/slow/root")
			if tc.keep == api.KeepDst {
				kept, attachment, generation, free = at("/slow/root"), rootTo, 2, at("/fast/root")
			}
			if v.Location != kept || v.Attachments[0].ID != attachment || v.Generation != generation || v.MigrationID != "" {
				t.Errorf("volume = %+v", v)
			}
			e := lastEvent(t, s)
			if e.What != "migration.abandon" || e.Details["keep"] != tc.keep || e.Details["reason"] != "the host burned down" {
				t.Errorf("event = %+v", e)
			}
			free.Pool, free.Name = "", ""
			wantFree(t, s, free)
			// After its rejoin the host finds the migration ended.
			must(s.Hosts.Rejoin(t.Context(), nobody, "a", api.HostRejoin{Epoch: 2}))(t)
			late := step(api.MigrationCompleted, api.MigrationCompleting)
			late.Epoch = 2
			wantCode(t, second(s.Migrations.Transition(t.Context(), nobody, move, late)), api.CodeNoMigration, string(tc.end))
		})
	}
}

func TestADstThatIsNoWholeCopyIsNotKept(t *testing.T) {
	for _, states := range [][]api.MigrationState{
		nil,
		{api.MigrationStarted},
		{api.MigrationStarted, api.MigrationCopying},
		{api.MigrationStarted, api.MigrationCopying, api.MigrationCopied, api.MigrationCancelling},
	} {
		s := newCluster(t)
		orphan(states...)(t, s)
		wantCode(t, second(s.Migrations.Abandon(t.Context(), nobody, move, api.MigrationAbandon{Keep: api.KeepDst, Reason: "x"})), api.CodeCopyNotVerified, "keep src")
	}
}

func TestADstThatMayBeTornIsKeptOnAnExplicitWordAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		state  api.MigrationState
		torn   bool
	}{
		"overlay, copied":         {"overlay", api.MigrationCopied, false},
		"overlay, completing":     {"overlay", api.MigrationCompleting, true},
		"overlay, needs operator": {"overlay", api.MigrationNeedsOperator, true},
		"mirror, completing":      {"mirror", api.MigrationCompleting, true},
		"offline, completing":     {"offline", api.MigrationCompleting, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			in := rootMigration()
			in.Method = tc.method
			must(s.Migrations.Register(t.Context(), nobody, in))(t)
			must(s.Migrations.Transition(t.Context(), nobody, move, step(tc.state, api.MigrationStarting)))(t)
			fenceA(t, s)
			_, err := s.Migrations.Abandon(t.Context(), nobody, move, api.MigrationAbandon{Keep: api.KeepDst, Reason: "x"})
			if !tc.torn {
				must(0, err)(t)
				return
			}
			wantCode(t, err, api.CodeCopyNotVerified, "may be a corrupt filesystem")
			must(s.Migrations.Abandon(t.Context(), nobody, move, api.MigrationAbandon{Keep: api.KeepDst, Reason: "x", EvenIfCorrupt: true}))(t)
		})
	}
}

func TestAbandonOfAnUnattachedVolumeSaysThatNothingIsLost(t *testing.T) {
	s := newCluster(t)
	must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t)
	fenceA(t, s)
	m := must(s.Migrations.Abandon(t.Context(), nobody, dataMigration().ID, api.MigrationAbandon{Keep: api.KeepSrc, Reason: "x"}))(t)
	if !strings.Contains(m.Error.Message, "lacks nothing") {
		t.Errorf("error = %v", m.Error)
	}
	wantVolume(t, s, data, api.VolumeAvailable, 0)
}
