// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// typed returns a setup function that makes a volume type.
func typed(in api.VolumeTypeCreate) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(s.Types.Create(t.Context(), nobody, in))(t)
	}
}

func retyping(ref string, in api.VolumeRetype) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error { return second(s.Retypes.Retype(t.Context(), nobody, ref, in)) }
}

func planning(ref string, in api.VolumeRetype) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error { return second(s.Retypes.Plan(t.Context(), ref, in)) }
}

func registering(edit func(*api.VolumeRegister)) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error {
		in := api.VolumeRegister{ID: id(volumeKind, 9), Name: "new", Status: api.VolumeCreating, Type: "gold", Host: "a", Location: at("/nfs/new")}
		edit(&in)
		return second(s.Volumes.Register(t.Context(), nobody, in))
	}
}

func updatingType(ref string, in api.VolumeTypeUpdate) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error { return second(s.Types.Update(t.Context(), nobody, ref, in)) }
}

// noCapablePool makes every pool unable to do multiattach.
func noCapablePool(t *testing.T, s *Store) {
	t.Helper()
	rawSQL("UPDATE pools SET multiattach = 0")(t, s)
}

func retypingAs(to string) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error {
		in := diskMigration()
		in.ToType = to
		return second(s.Migrations.Register(t.Context(), nobody, in))
	}
}

func TestTypesAndPoliciesThatAreRefused(t *testing.T) {
	yes, no := true, false
	silver := typed(api.VolumeTypeCreate{Name: "silver", Pools: []string{"slow"}})
	goldThin := typed(api.VolumeTypeCreate{Name: "goldthin", Multiattach: true, Pools: []string{"thin"}})
	plain := typed(api.VolumeTypeCreate{Name: "plain"})
	plainVolume := func(edit func(*api.VolumeRegister)) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			t.Helper()
			plain(t, s)
			in := api.VolumeRegister{ID: id(volumeKind, 9), Name: "new", Status: api.VolumeAvailable, Type: "plain", Host: "a", Location: at("/nfs/new")}
			edit(&in)
			must(s.Volumes.Register(t.Context(), nobody, in))(t)
		}
	}
	asIs := func(*api.VolumeRegister) {}
	become := api.VolumeTypeUpdate{Multiattach: &yes}
	movingTo := func(name string) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			t.Helper()
			in := diskMigration()
			in.ToType = name
			moving(in)(t, s)
		}
	}
	dataToGold := func(t *testing.T, s *Store) {
		t.Helper()
		in := dataMigration()
		in.ToType = "gold"
		moving(in)(t, s)
	}
	checkClusterRefusals(t, map[string]refusal{
		"make: no capable pool":              {noCapablePool, registering(asIs), api.CodeNoCapablePool, "no active pool of any host"},
		"make: no capable pool of the type":  {goldThin, registering(func(v *api.VolumeRegister) { v.Type, v.Location = "goldthin", at("/thin/new") }), api.CodeNoCapablePool, "of that type (thin)"},
		"make: capable pool inactive":        {rawSQL("UPDATE pools SET active = 0"), registering(asIs), api.CodeNoCapablePool, "no active pool"},
		"make: in another pool":              {nil, registering(func(v *api.VolumeRegister) { v.Location = at("/thin/new") }), api.CodeNoCapablePool, "the pool thin cannot do multiattach"},
		"make: policy off":                   {policy(api.PolicyMultiattach, false), registering(asIs), api.CodePolicyDenied, "the policy multiattach is off"},
		"make: bootable":                     {nil, registering(func(v *api.VolumeRegister) { v.Bootable = true }), api.CodePolicyDenied, "the policy multiattach_bootable is off"},
		"make: not raw":                      {nil, registering(func(v *api.VolumeRegister) { v.Location.Format = api.FormatQcow2 }), api.CodeUnsupportedDisk, "is raw"},
		"make multiattach bootable":          {nil, bootable(disk), api.CodePolicyDenied, "the multiattach volume disk bootable"},
		"make bootable on the way":           {dataToGold, bootable(data), api.CodePolicyDenied, "the multiattach volume data bootable"},
		"retype: no type":                    {nil, retyping(data, api.VolumeRetype{}), api.CodeInvalidArgument, "missing"},
		"retype: unknown type":               {nil, retyping(data, api.VolumeRetype{Type: "brass"}), api.CodeNotFound, "brass"},
		"retype: unknown policy":             {nil, retyping(data, api.VolumeRetype{Type: "gold", MigrationPolicy: "maybe"}), api.CodeInvalidArgument, "maybe"},
		"retype: locked":                     {moving(dataMigration()), retyping(data, api.VolumeRetype{Type: "gold"}), api.CodeMigrationActive, "cannot retype volume data"},
		"retype: deleting":                   {dataStatus(api.VolumeDeleting), retyping(data, api.VolumeRetype{Type: "gold"}), api.CodeVolumeNotAvailable, "deleting"},
		"retype: in use, to multiattach":     {nil, retyping(root, api.VolumeRetype{Type: "gold"}), api.CodeInUseRetype, "root"},
		"retype: reserved, from multiattach": {reserved(nil), retyping(disk, api.VolumeRetype{Type: "default"}), api.CodeInUseRetype, "disk"},
		"retype: in use, on demand":          {nil, retyping(root, api.VolumeRetype{Type: "gold", MigrationPolicy: api.RetypeOnDemand}), api.CodeInUseRetype, "root"},
		"retype: policy off":                 {policy(api.PolicyMultiattach, false), retyping(data, api.VolumeRetype{Type: "gold"}), api.CodePolicyDenied, "policy multiattach is off"},
		"retype: no capable pool":            {noCapablePool, retyping(data, api.VolumeRetype{Type: "gold"}), api.CodeNoCapablePool, "gold"},
		"retype: not raw":                    {rawSQL("UPDATE locations SET format = 'qcow2' WHERE volume_id = '" + data + "'"), retyping(data, api.VolumeRetype{Type: "gold"}), api.CodeUnsupportedDisk, "raw"},
		"retype: elsewhere, never":           {silver, retyping(data, api.VolumeRetype{Type: "silver", MigrationPolicy: api.RetypeNever}), api.CodePolicyDenied, "no place for type silver"},
		"retype: elsewhere, on demand":       {silver, retyping(data, api.VolumeRetype{Type: "silver", MigrationPolicy: api.RetypeOnDemand}), api.CodeConflict, "migrate it to pool slow"},
		"plan: never":                        {silver, planning(data, api.VolumeRetype{Type: "silver"}), api.CodePolicyDenied, "no place for type silver"},
		"plan: in use":                       {nil, planning(root, api.VolumeRetype{Type: "gold", MigrationPolicy: api.RetypeOnDemand}), api.CodeInUseRetype, "root"},
		"plan: locked":                       {moving(dataMigration()), planning(data, api.VolumeRetype{Type: "gold"}), api.CodeMigrationActive, "data"},
		"plan: no pool on its host":          {inTurn(silver, rawSQL("DELETE FROM pools WHERE name = 'slow' AND host_id = '"+hostA+"'")), planning(data, api.VolumeRetype{Type: "silver", MigrationPolicy: api.RetypeOnDemand}), api.CodeNoCapablePool, "its host has no other active pool"},
		"plan: two attachments":              {inTurn(typed(api.VolumeTypeCreate{Name: "goldslow", Multiattach: true, Pools: []string{"slow"}}), reserved(nil), reserved(atWeb)), planning(disk, api.VolumeRetype{Type: "goldslow", MigrationPolicy: api.RetypeOnDemand}), api.CodeMultiattached, "2 attachments"},
		"plan: to a pool of another type":    {silver, planning(data, api.VolumeRetype{Type: "silver", MigrationPolicy: api.RetypeOnDemand, ToPool: "nfs"}), api.CodePolicyDenied, `cannot move volume data to pool nfs: its new type silver allows the pools ["slow"] only`},
		"plan: to where it is, not allowed":  {silver, planning(data, api.VolumeRetype{Type: "silver", MigrationPolicy: api.RetypeOnDemand, ToPool: "fast"}), api.CodePolicyDenied, "to pool fast"},
		"plan: to a path in such a pool":     {silver, planning(data, api.VolumeRetype{Type: "silver", MigrationPolicy: api.RetypeOnDemand, ToPath: "/slow/../nfs/data"}), api.CodePolicyDenied, "allows the pools"},
		"plan: to a path below its pool":     {silver, planning(data, api.VolumeRetype{Type: "silver", MigrationPolicy: api.RetypeOnDemand, ToPath: "/slow/below/data"}), api.CodePolicyDenied, "allows the pools"},
		"plan: to a path of a long name":     {silver, planning(data, api.VolumeRetype{Type: "silver", MigrationPolicy: api.RetypeOnDemand, ToPath: "/slow/" + strings.Repeat("x", 5000)}), api.CodeInvalidArgument, "path"},
		"plan: where it is, cannot share":    {inTurn(plainVolume(func(v *api.VolumeRegister) { v.Location = at("/thin/new") })), planning("new", api.VolumeRetype{Type: "gold", MigrationPolicy: api.RetypeOnDemand, ToPool: "thin"}), api.CodeNoCapablePool, "the pool thin cannot do that"},
		"plan: elsewhere, two attachments":   {inTurn(typed(api.VolumeTypeCreate{Name: "gold2", Multiattach: true}), reserved(nil), reserved(atWeb)), planning(disk, api.VolumeRetype{Type: "gold2", MigrationPolicy: api.RetypeOnDemand, ToPool: "slow"}), api.CodeMultiattached, "2 attachments"},
		"retype: to a place, on demand":      {silver, retyping(data, api.VolumeRetype{Type: "silver", MigrationPolicy: api.RetypeOnDemand, ToPath: "/slow/d"}), api.CodeConflict, "migrate it to /slow/d with that type"},
		"migrate: unknown type":              {nil, retypingAs("brass"), api.CodeNotFound, "brass"},
		"migrate: in use, other multiattach": {nil, migrate(func(m *api.MigrationRegister) { m.ToType = "gold" }), api.CodeInUseRetype, "root"},
		"migrate: type not for dst":          {typed(api.VolumeTypeCreate{Name: "nfsonly", Pools: []string{"nfs"}}), retypingAs("nfsonly"), api.CodePolicyDenied, "type nfsonly"},
		"migrate: multiattach to a pool that cannot": {nil, func(t *testing.T, s *Store) error {
			in := diskMigration()
			in.Dst = at("/thin/disk")
			return second(s.Migrations.Register(t.Context(), nobody, in))
		}, api.CodeNoCapablePool, "thin"},
		"migrate: multiattach to qcow2": {nil, func(t *testing.T, s *Store) error {
			in := diskMigration()
			in.Dst.Format = api.FormatQcow2
			return second(s.Migrations.Register(t.Context(), nobody, in))
		}, api.CodeUnsupportedDisk, "raw"},
		"migrate: policy off": {policy(api.PolicyMultiattach, false), func(t *testing.T, s *Store) error {
			in := dataMigration()
			in.ToType = "gold"
			return second(s.Migrations.Register(t.Context(), nobody, in))
		}, api.CodePolicyDenied, "policy multiattach"},
		"type: mistyped pool": {nil, func(t *testing.T, s *Store) error {
			return second(s.Types.Create(t.Context(), nobody, api.VolumeTypeCreate{Name: "x", Pools: []string{"fsat"}}))
		}, api.CodeNotFound, `no pool "fsat" on any host; there are fast, nfs, slow, thin`},
		"type: mistyped pool later":           {nil, updatingType("gold", api.VolumeTypeUpdate{Pools: &[]string{"fsat"}}), api.CodeNotFound, "fsat"},
		"type: multiattach of what is in use": {inTurn(plain, reserved(nil)), updatingType("gold", api.VolumeTypeUpdate{Multiattach: &no}), api.CodeInUseRetype, "volume disk is attached"},
		"type: default is never multiattach": {func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Instances.Forget(t.Context(), nobody, web, Forget{}))(t)
		}, updatingType(DefaultType, become), api.CodeStateForbidden, "default"},
		"type: a volume moves":               {moving(diskMigration()), updatingType("gold", api.VolumeTypeUpdate{Multiattach: &no}), api.CodeMigrationActive, "volume disk"},
		"type: a volume moves to it":         {inTurn(plain, movingTo("plain")), updatingType("plain", become), api.CodeMigrationActive, "gives it to volume disk"},
		"type: delete while one moves to it": {inTurn(plain, movingTo("plain")), func(t *testing.T, s *Store) error { return second(s.Types.Delete(t.Context(), nobody, "plain")) }, api.CodeMigrationActive, "gives it to volume disk"},
		"type: of a qcow2":                   {plainVolume(func(v *api.VolumeRegister) { v.Location.Format = api.FormatQcow2 }), updatingType("plain", become), api.CodeUnsupportedDisk, "qcow2"},
		"type: of a bootable":                {plainVolume(func(v *api.VolumeRegister) { v.Bootable = true }), updatingType("plain", become), api.CodePolicyDenied, "multiattach_bootable"},
		"type: of one in a pool that cannot": {plainVolume(func(v *api.VolumeRegister) { v.Location = at("/thin/new") }), updatingType("plain", become), api.CodeNoCapablePool, "thin"},
		"type: policy off":                   {inTurn(plainVolume(asIs), policy(api.PolicyMultiattach, false)), updatingType("plain", become), api.CodePolicyDenied, "policy multiattach"},
		"type: by a host": {nil, func(t *testing.T, s *Store) error {
			return second(s.Types.Update(t.Context(), as(hostA, 1), "gold", become))
		}, api.CodePermissionDenied, "only an operator"},
		"policy: unknown": {nil, func(t *testing.T, s *Store) error {
			return second(s.Policies.Set(t.Context(), nobody, "x", api.PolicyUpdate{}))
		}, api.CodeNotFound, "multiattach and multiattach_bootable"},
		"policy: by a host": {nil, func(t *testing.T, s *Store) error {
			return second(s.Policies.Set(t.Context(), as(hostA, 1), api.PolicyMultiattach, api.PolicyUpdate{}))
		}, api.CodePermissionDenied, "only an operator"},
	})
}

func bootable(ref string) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error {
		yes := true
		return second(s.Volumes.Update(t.Context(), nobody, ref, api.VolumeUpdate{Bootable: &yes}))
	}
}

func TestPoliciesHoldForWhatIsAskedLater(t *testing.T) {
	s := newCluster(t)
	inTurn(attached(nil), attached(atWeb), policy(api.PolicyMultiattach, false), policy(api.PolicyMultiattachBootable, true))(t, s)
	wantVolume(t, s, disk, api.VolumeInUse, 2)
	want := []api.Policy{
		{Name: api.PolicyMultiattach, Description: policyTexts[api.PolicyMultiattach]},
		{Name: api.PolicyMultiattachBootable, Enabled: true, Description: policyTexts[api.PolicyMultiattachBootable]},
	}
	if diff := cmp.Diff(want, must(s.Policies.All(t.Context()))(t)); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

func TestRetypeInPlaceChangesTheTypeAlone(t *testing.T) {
	s := newCluster(t)
	before := must(s.Volumes.Get(t.Context(), data, everyone))(t)
	if plan := must(s.Retypes.Plan(t.Context(), data, api.VolumeRetype{Type: "gold"}))(t); !plan.InPlace || plan.Volume.ID != data {
		t.Errorf("plan = %+v", plan)
	}
	after := must(s.Retypes.Retype(t.Context(), nobody, data, api.VolumeRetype{Type: "gold"}))(t)
	before.Type, before.Multiattach, before.UpdatedAt = "gold", true, after.UpdatedAt
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("volume (-want +got):\n%s", diff)
	}
	err := unchanged(t, s, func() error {
		return second(s.Retypes.Retype(t.Context(), nobody, data, api.VolumeRetype{Type: "gold"}))
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRetypeElsewhereGoesToTheFreestPoolOfTheHost(t *testing.T) {
	s := newCluster(t)
	inTurn(typed(api.VolumeTypeCreate{Name: "two", Pools: []string{"nfs", "slow"}}), typed(api.VolumeTypeCreate{Name: "gold2", Multiattach: true, Pools: []string{"nfs", "slow", "thin"}}))(t, s)
	for _, name := range []string{"two", "gold2"} {
		plan := must(s.Retypes.Plan(t.Context(), data, api.VolumeRetype{Type: name, MigrationPolicy: api.RetypeOnDemand}))(t)
		if plan.InPlace || plan.ToPool != "slow" {
			t.Errorf("plan for %s = %+v", name, plan)
		}
	}
	pools := clusterPools()
	pools[3].FreeBytes = 99 // as last reported, not yet stored
	must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostA, Name: "a", BootID: "first", Pools: pools}))(t)
	if plan := must(s.Retypes.Plan(t.Context(), data, api.VolumeRetype{Type: "two", MigrationPolicy: api.RetypeOnDemand}))(t); plan.ToPool != "nfs" {
		t.Errorf("plan = %+v", plan)
	}
}

func TestRetypeGoesWhereThatIsAskedForAndNowhereIfTheVolumeIsThere(t *testing.T) {
	s := newCluster(t)
	typed(api.VolumeTypeCreate{Name: "two", Pools: []string{"fast", "nfs"}})(t, s)
	typed(api.VolumeTypeCreate{Name: "anywhere"})(t, s)
	for name, tc := range map[string]struct {
		in    api.VolumeRetype
		moves bool
	}{
		"another pool than the freest":           {api.VolumeRetype{Type: "two", ToPool: "nfs"}, true},
		"a path in a pool":                       {api.VolumeRetype{Type: "two", ToPath: "/nfs/other"}, true},
		"another path in the pool where it is":   {api.VolumeRetype{Type: "two", ToPath: "/fast/other"}, true},
		"a path in no pool":                      {api.VolumeRetype{Type: "anywhere", ToPath: "/elsewhere/x"}, true},
		"a pool that its host may have made now": {api.VolumeRetype{Type: "anywhere", ToPool: "new"}, true},
		"another format":                         {api.VolumeRetype{Type: "two", ToPool: "nfs", ToFormat: api.FormatQcow2}, true},
		"the format that it has, where it is":    {api.VolumeRetype{Type: "two", ToFormat: api.FormatRaw}, false},
		"the pool where it is":                   {api.VolumeRetype{Type: "two", ToPool: "fast"}, false},
		"the path where it is":                   {api.VolumeRetype{Type: "two", ToPath: "/fast/../fast/data"}, false},
		"no place":                               {api.VolumeRetype{Type: "two"}, false},
	} {
		tc.in.MigrationPolicy = api.RetypeOnDemand
		plan := must(s.Retypes.Plan(t.Context(), data, tc.in))(t)
		if plan.InPlace == tc.moves || plan.ToPool != tc.in.ToPool || plan.ToPath != tc.in.ToPath {
			t.Errorf("%s: plan = %+v", name, plan)
		}
		// This call does not move, and changes nothing.
		if tc.moves {
			err := unchanged(t, s, func() error { return second(s.Retypes.Retype(t.Context(), nobody, data, tc.in)) })
			if wantCode(t, err, api.CodeConflict); !IsMove(err) {
				t.Errorf("%s: %v is not a refusal of a move", name, err)
			}
		}
	}
}

func TestAPathInThePoolOfATypeIsAPlaceOfThatType(t *testing.T) {
	s := newCluster(t)
	typed(api.VolumeTypeCreate{Name: "slowonly", Pools: []string{"slow"}})(t, s)
	in := dataMigration()
	in.ToType = "slowonly"
	in.Dst.Pool, in.Dst.Name = "", ""
	for path, want := range map[string]api.Code{"/nfs/data": api.CodePolicyDenied, "/slow/below/data": api.CodePolicyDenied} {
		in.Dst.Path = path
		wantCode(t, second(s.Migrations.Register(t.Context(), nobody, in)), want)
	}
	in.Dst.Path = "/slow/data"
	must(s.Migrations.Register(t.Context(), nobody, in))(t)
}

func TestTypeAndPlaceChangeTogether(t *testing.T) {
	for _, end := range []api.MigrationState{api.MigrationCompleted, api.MigrationCancelled} {
		t.Run(string(end), func(t *testing.T) {
			s := newCluster(t)
			in := dataMigration()
			in.ToType = "gold"
			m := must(s.Migrations.Register(t.Context(), nobody, in))(t)
			if v := must(s.Volumes.Get(t.Context(), data, everyone))(t); v.Type != DefaultType || v.Multiattach {
				t.Errorf("the type changed before the end: %+v", v)
			}
			must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleting, api.MigrationStarting)))(t)
			made := at("/slow/made")
			last := step(end, api.MigrationCompleting)
			last.Dst = &made
			last.NotSwitched = end == api.MigrationCancelled
			must(s.Migrations.Transition(t.Context(), nobody, m.ID, last))(t)
			v := must(s.Volumes.Get(t.Context(), data, everyone))(t)
			done := end == api.MigrationCompleted
			if (v.Type == "gold") != done || v.Multiattach != done || (v.Location == made) != done {
				t.Errorf("volume = %+v", v)
			}
		})
	}
}

func TestMigrationOfAMultiattachVolumeWithOneAttachmentKeepsOthersOut(t *testing.T) {
	s := newCluster(t)
	attached(nil)(t, s)
	in := diskMigration()
	in.SrcAttachmentID, in.DstAttachmentID = first, id(attachmentKind, 9)
	m := must(s.Migrations.Register(t.Context(), nobody, in))(t)
	wantCode(t, reserving(atDB)(t, s), api.CodeMigrationActive, m.ID)
	must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleting, api.MigrationStarting)))(t)
	must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleted, api.MigrationCompleting)))(t)
	wantCode(t, reserving(atWeb)(t, s), api.CodeStaleGeneration, "generation 2")
	reserved(func(in *api.AttachmentReserve) { atWeb(in); in.Generation = 2 })(t, s)
	wantVolume(t, s, disk, api.VolumeInUse, 2)
}

func TestARetypeToAnotherFormatMovesAVolumeThatCouldStay(t *testing.T) {
	s := newCluster(t)
	typed(api.VolumeTypeCreate{Name: "anywhere"})(t, s)
	in := api.VolumeRetype{Type: "anywhere", MigrationPolicy: api.RetypeOnDemand}
	if plan := must(s.Retypes.Plan(t.Context(), data, in))(t); !plan.InPlace {
		t.Fatalf("it moves anyway: %+v", plan)
	}
	in.ToFormat = api.FormatQcow2
	if plan := must(s.Retypes.Plan(t.Context(), data, in))(t); plan.InPlace || plan.ToPool == "" || plan.ToPool == plan.Volume.Location.Pool {
		t.Errorf("plan = %+v", plan)
	}
	in.ToPool = "fast"
	wantCode(t, second(s.Retypes.Plan(t.Context(), data, in)), api.CodeSameLocation, "name another place")
}
