// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// unheldMigration returns a move of root, which is unheld, to pool slow of host a.
func unheldMigration() api.MigrationRegister {
	in := rootMigration()
	in.SrcAttachmentID, in.DstAttachmentID, in.Method = "", "", "offline"
	return in
}

// sharedMigration returns a move of disk, in the shared pool, to pool slow of host b.
func sharedMigration() api.MigrationRegister {
	in := unheldMigration()
	in.VolumeID, in.Host, in.Dst = disk, hostB, at("/slow/disk")
	return in
}

func movingUnheld(in api.MigrationRegister, steps ...api.MigrationState) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		from := must(s.Migrations.Register(t.Context(), nobody, in))(t).State
		for _, to := range steps {
			step := step(to, from)
			step.Host = in.Host
			must(s.Migrations.Transition(t.Context(), nobody, in.ID, step))(t)
			from = to
		}
	}
}

// slowOnly makes a type that allows only pool slow.
func slowOnly(t *testing.T, s *Store) {
	t.Helper()
	must(s.Types.Create(t.Context(), nobody, api.VolumeTypeCreate{Name: "slow-only", Pools: []string{"slow"}}))(t)
}

// The attachment does not change, and follows the volume.
func TestAnInstanceComesFromTheShelfWithAVolumeThatMovedMeanwhile(t *testing.T) {
	s := newCluster(t)
	inTurn(offloaded(web), movingUnheld(unheldMigration(), api.MigrationCompleting))(t, s)
	v := must(s.Volumes.Get(t.Context(), root, everyone))(t)
	if v.MigrationID != move || v.Status != api.VolumeInUse || len(v.Attachments) != 1 || v.Attachments[0].Location != at("/fast/root") {
		t.Errorf("while it moves: %+v", v)
	}
	was := v.Attachments[0]
	must(s.Migrations.Transition(t.Context(), nobody, move, step(api.MigrationCompleted, api.MigrationCompleting)))(t)
	v = must(s.Volumes.Get(t.Context(), root, everyone))(t)
	was.Location = at("/slow/root")
	if diff := cmp.Diff([]api.Attachment{was}, v.Attachments); diff != "" || v.MigrationID != "" || v.Generation != 2 || v.Location != was.Location {
		t.Errorf("moved: %+v, attachments (-want +got):\n%s", v, diff)
	}
	wantFree(t, s, at("/fast/root"))
	back := must(s.Shelf.Transition(t.Context(), nobody, web, claim()))(t)
	if len(back.Attachments) != 1 || back.Attachments[0].ID != rootAt || back.Attachments[0].Location != at("/slow/root") {
		t.Errorf("claimed %+v", back)
	}
}

func TestACancelledMoveLeavesAShelvedInstanceAsItWas(t *testing.T) {
	s := newCluster(t)
	offloaded(web)(t, s)
	before := must(s.Volumes.Get(t.Context(), root, everyone))(t)
	movingUnheld(unheldMigration(), api.MigrationStarted, api.MigrationCancelling, api.MigrationCancelled)(t, s)
	if diff := cmp.Diff(before, must(s.Volumes.Get(t.Context(), root, everyone))(t)); diff != "" {
		t.Errorf("volume (-before +after):\n%s", diff)
	}
	wantFree(t, s, at("/slow/root"))
	movedTo(web, claim(), complete())(t, s)
}

// No guest has to be kept from src, because no instance has a host.
func TestAVolumeThatSeveralShelvedInstancesHaveMovesForAll(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), attached(atWeb), offloaded(app), offloaded(web), movingUnheld(sharedMigration(), api.MigrationCompleting, api.MigrationCompleted))(t, s)
	v := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
	if len(v.Attachments) != 2 || v.Location != at("/slow/disk") || v.Host != "b" {
		t.Errorf("volume = %+v", v)
	}
	for _, a := range v.Attachments {
		if a.Location != v.Location {
			t.Errorf("attachment %s is at %+v", a.ID, a.Location)
		}
	}
}

// If the copying host is fenced, the volume stays locked until an operator decides for a copy, and
// its instance cannot be unshelved before.
func TestAFencedMoverHoldsAShelvedInstanceUntilItsMoveIsAbandoned(t *testing.T) {
	for keep, want := range map[string]api.Location{api.KeepSrc: at("/nfs/disk"), api.KeepDst: at("/slow/disk")} {
		t.Run(keep, func(t *testing.T) {
			s := newCluster(t)
			inTurn(attached(nil), offloaded(app), movingUnheld(sharedMigration(), api.MigrationCopied), fencedB)(t, s)
			wantCode(t, transitioning(nobody, app, claim())(t, s), api.CodeMigrationActive, "moving its volume disk")
			m := must(s.Migrations.Abandon(t.Context(), nobody, move, api.MigrationAbandon{Keep: keep, Reason: "it is gone"}))(t)
			if !strings.Contains(m.Error.Message, "lacks nothing that was written") {
				t.Errorf("the word of the end is %q", m.Error.Message)
			}
			if v := must(s.Volumes.Get(t.Context(), disk, everyone))(t); v.Location != want || v.MigrationID != "" {
				t.Errorf("volume = %+v, want it at %+v", v, want)
			}
			err := transitioning(nobody, app, claim())(t, s)
			if keep == api.KeepSrc && err != nil {
				t.Error(err)
			} else if keep == api.KeepDst {
				wantCode(t, err, api.CodeUnsupportedDisk, "volume disk")
			}
		})
	}
}

func fencedB(t *testing.T, s *Store) {
	t.Helper()
	must(s.Hosts.Fence(t.Context(), nobody, hostB, cut))(t)
}

func TestWhatIsRefusedWhileAVolumeOfAShelvedInstanceMoves(t *testing.T) {
	moving := inTurn(offloaded(web), movingUnheld(unheldMigration()))
	migrating := func(change func(*api.MigrationRegister)) func(*testing.T, *Store) error {
		in := sharedMigration()
		change(&in)
		return func(t *testing.T, s *Store) error { return second(s.Migrations.Register(t.Context(), nobody, in)) }
	}
	just := func(*api.MigrationRegister) {}
	shelvedDisk := inTurn(attached(nil), offloaded(app))
	checkClusterRefusals(t, map[string]refusal{
		"unshelve": {moving, transitioning(nobody, web, claim()), api.CodeMigrationActive, "cannot unshelve instance web: migration " + move + " is moving its volume root"},
		"unshelve, before a host is asked": {moving, func(t *testing.T, s *Store) error {
			return second(s.Shelf.PlanUnshelve(t.Context(), "web", ""))
		}, api.CodeMigrationActive, "moving its volume root"},
		"detach": {moving, func(t *testing.T, s *Store) error {
			return second(s.Shelf.Detach(t.Context(), nobody, "root", api.VolumeDetach{Instance: "web"}))
		}, api.CodeMigrationActive, "cannot detach volume root"},
		"delete of the attachment": {moving, func(t *testing.T, s *Store) error {
			return second(s.Shelf.DeleteAttachment(t.Context(), nobody, rootAt))
		}, api.CodeMigrationActive, "cannot detach volume root"},
		"another root volume": {moving, attaching(nobody, "data", api.VolumeAttach{Instance: "web", Root: true}), api.CodeConflict, "taken by volume root"},
		"attach to another instance": {
			inTurn(shelvedDisk, movingUnheld(sharedMigration()), offloaded(web)), attaching(nobody, "disk", api.VolumeAttach{Instance: "web"}), api.CodeMigrationActive, "cannot attach volume disk",
		},
		"forget of the instance": {moving, func(t *testing.T, s *Store) error {
			return second(s.Instances.Forget(t.Context(), nobody, web, store.Forget{WithDefinition: true}))
		}, api.CodeMigrationActive, "moving its volume root"},
		"forget of the volume": {moving, func(t *testing.T, s *Store) error { return second(s.Volumes.Forget(t.Context(), nobody, "root")) }, api.CodeMigrationActive, "cannot forget volume root"},
		"a second move":        {inTurn(shelvedDisk, movingUnheld(sharedMigration())), migrating(func(in *api.MigrationRegister) { in.ID = id(migrationKind, 9) }), api.CodeMigrationActive, "migrate volume disk"},
		"a move at its attachment": {shelvedDisk, migrating(func(in *api.MigrationRegister) {
			in.SrcAttachmentID, in.DstAttachmentID = first, next
		}), api.CodeConflict, "no host has it at an instance any more"},
		"a move while another instance runs with it": {inTurn(attached(nil), attached(atWeb), offloaded(app)), migrating(just), api.CodeMultiattached, "2 attachments"},
		"a move once it is on its way back":          {inTurn(attached(nil), movedTo(app, toShelf(), offload(), claim())), migrating(just), api.CodeConflict, "it is attached by"},
		"a move by a host that does not reach it":    {offloaded(web), migrating(func(in *api.MigrationRegister) { in.VolumeID = root }), api.CodeNotYourHost, "it is on host a"},
	})
}

func TestWhichHostsMayMoveAVolumeThatNoHostHas(t *testing.T) {
	bothPools := inTurn(attached(nil), offloaded(app))
	onlyB := func(t *testing.T, s *Store) {
		t.Helper()
		must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostB, Name: "b", BootID: "first", Pools: append(clusterPools(), api.Pool{Name: "wide", Type: "dir", Path: "/wide", Active: true})}))(t)
	}
	inactiveOnA := func(t *testing.T, s *Store) {
		t.Helper()
		pools := clusterPools()
		pools[1].Active = false
		must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostA, Name: "a", BootID: "first", Pools: pools}))(t)
	}
	for name, tc := range map[string]struct {
		before       func(*testing.T, *Store)
		volume, pool string
		want         string // the hosts
		code         api.Code
		text         string
	}{
		"its last host first":                 {before: bothPools, volume: disk, pool: "slow", want: hostA + " " + hostB},
		"of an unattached one its own first":  {volume: disk, pool: "slow", want: hostA + " " + hostB},
		"a path":                              {volume: disk, want: hostA + " " + hostB},
		"where both pools are":                {before: inTurn(bothPools, onlyB), volume: disk, pool: "wide", want: hostB},
		"where the pool is active first":      {before: inTurn(bothPools, inactiveOnA), volume: disk, pool: "slow", want: hostB + " " + hostA},
		"a host that is fenced last":          {before: inTurn(bothPools, fenceA), volume: disk, pool: "slow", want: hostB + " " + hostA},
		"what one host has alone":             {before: offloaded(web), volume: root, pool: "slow", want: hostA},
		"who reaches its other volumes alone": {before: inTurn(attached(atWeb), offloaded(web)), volume: disk, pool: "slow", want: hostA},
		"none":                                {before: inTurn(offloaded(web), onlyB), volume: root, pool: "wide", code: api.CodeUnsupportedDisk, text: "cannot migrate volume root to pool wide: no host reaches both that pool and /fast/root"},
		"a pool that nobody has reported":     {volume: disk, pool: "new", want: hostA + " " + hostB},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			hosts, err := s.Volumes.Movers(t.Context(), tc.volume, tc.pool)
			if tc.code != "" {
				wantCode(t, err, tc.code, tc.text)
			} else if got := strings.Join(hosts, " "); err != nil || got != tc.want {
				t.Errorf("hosts = %q %v, want %q", got, err, tc.want)
			}
		})
	}
}
