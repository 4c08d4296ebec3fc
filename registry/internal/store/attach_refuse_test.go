// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// checkClusterRefusals is checkRefusals on a cluster.
func checkClusterRefusals(t *testing.T, cases map[string]refusal) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kit.WantRefused(t, newCluster(t), tc.before, tc.do, tc.code, tc.text)
		})
	}
}

func reserving(edit func(*api.AttachmentReserve)) func(*testing.T, *Store) error {
	return func(t *testing.T, s *Store) error {
		return second(s.Attachments.Reserve(t.Context(), nobody, reserve(edit)))
	}
}

// rawSQL brings a site into a state that the rules prevent.
func rawSQL(query string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		if _, err := s.sqlite.Write.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReservesThatAreRefused(t *testing.T) {
	ofData := func(in *api.AttachmentReserve) { in.VolumeID = data }
	bootable := func(t *testing.T, s *Store) {
		yes := true
		policy(api.PolicyMultiattachBootable, true)(t, s)
		must(s.Volumes.Update(t.Context(), nobody, disk, api.VolumeUpdate{Bootable: &yes}))(t)
		policy(api.PolicyMultiattachBootable, false)(t, s)
	}
	emptyRoot := inTurn(stoppedWithoutRoot, instanceState(api.InstanceRunning, web))
	checkClusterRefusals(t, map[string]refusal{
		"locked volume": {moving(diskMigration()), reserving(nil), api.CodeMigrationActive, "cannot attach volume disk: migration " + id(migrationKind, 2)},
		"orphaned lock": {inTurn(moving(diskMigration()), fenceA), reserving(atDB), api.CodeMigrationActive, "volume disk"},
		"deleting":      {dataStatus(api.VolumeDeleting), reserving(ofData), api.CodeVolumeNotAvailable, "cannot attach volume data: it is deleting"},
		"in error":      {dataStatus(api.VolumeError), reserving(ofData), api.CodeVolumeNotAvailable, "it is error"},
		"creating": {func(t *testing.T, s *Store) {
			must(s.Volumes.Register(t.Context(), nobody, api.VolumeRegister{ID: id(volumeKind, 9), Name: "new", Status: api.VolumeCreating, Host: "a", Location: at("/fast/new")}))(t)
		}, reserving(func(in *api.AttachmentReserve) { in.VolumeID = id(volumeKind, 9) }), api.CodeVolumeNotAvailable, "it is creating"},
		"stale generation": {nil, reserving(func(in *api.AttachmentReserve) { in.Generation = 2 }), api.CodeStaleGeneration, "generation 1 and the request is of generation 2"},
		"in use": {
			nil, reserving(func(in *api.AttachmentReserve) { in.VolumeID = root }), api.CodeVolumeInUse,
			"volume root: it is at instance web, and its type is not multiattach",
		},
		"reserved counts as in use":           {reserved(ofData), reserving(func(in *api.AttachmentReserve) { atWeb(in); in.VolumeID = data }), api.CodeVolumeInUse, "at instance app"},
		"policy multiattach off":              {inTurn(reserved(nil), policy(api.PolicyMultiattach, false)), reserving(atWeb), api.CodePolicyDenied, "the policy multiattach is off"},
		"policy multiattach_bootable off":     {inTurn(bootable, reserved(nil)), reserving(atWeb), api.CodePolicyDenied, "the policy multiattach_bootable is off"},
		"device of another disk":              {nil, reserving(func(in *api.AttachmentReserve) { in.InstanceID, in.Device = web, "vda" }), api.CodeConflict, "vda of instance web is taken by volume root; detach that first"},
		"device of a cdrom":                   {nil, reserving(func(in *api.AttachmentReserve) { in.InstanceID, in.Device = web, "sda" }), api.CodeConflict, "it is a cdrom"},
		"device of another reservation":       {reserved(nil), reserving(func(in *api.AttachmentReserve) { in.ID, in.VolumeID = next, local }), api.CodeConflict, "vdb of instance app is taken"},
		"at this instance already":            {reserved(nil), reserving(func(in *api.AttachmentReserve) { in.ID, in.Device = next, "vdc" }), api.CodeConflict, "volume disk is at instance app already"},
		"second host and a pool of the first": {reserved(func(in *api.AttachmentReserve) { in.VolumeID = local }), reserving(func(in *api.AttachmentReserve) { atDB(in); in.VolumeID = local }), api.CodeUnsupportedDisk, "on a second host"},
		"another host's volume":               {nil, reserving(func(in *api.AttachmentReserve) { atDB(in); in.VolumeID = local }), api.CodeNotYourHost, "/fast/local"},
		"second host without the shared pool": {inTurn(reserved(nil), rawSQL("DELETE FROM pools WHERE name = 'nfs' AND host_id = '"+hostB+"'")), reserving(atDB), api.CodeUnsupportedDisk, "second host"},
		"a LUKS container":                    {rawSQL("UPDATE locations SET luks_secret = '" + web + "' WHERE volume_id = '" + disk + "'"), reserving(nil), api.CodeUnsupportedDisk, "encrypted by QEMU (LUKS)"},
		"multiattach and qcow2":               {rawSQL("UPDATE locations SET format = 'qcow2' WHERE volume_id = '" + disk + "'"), reserving(nil), api.CodeUnsupportedDisk, "it is qcow2"},
		"shelved instance":                    {shelved(app), reserving(nil), api.CodeStateForbidden, "instance app: it is shelved"},
		"shelved_offloaded instance":          {offloaded(app), reserving(nil), api.CodeStateForbidden, "instance app: it is shelved_offloaded"},
		"locked instance":                     {lockedInstance(app), reserving(nil), api.CodeInstanceLocked, "instance app: it is locked (audit); `volferryctl instance unlock app`"},
		"instance in error":                   {instanceState(api.InstanceError, app), reserving(nil), api.CodeStateForbidden, "instance app: it is error"},
		"root of a running instance": {
			emptyRoot, reserving(func(in *api.AttachmentReserve) { in.InstanceID, in.VolumeID, in.Device = web, root, "vda" }),
			api.CodeRootAttachForbidden, "instance web: it is running",
		},
		"root slot and not asked for": {
			stoppedWithoutRoot, reserving(func(in *api.AttachmentReserve) { in.InstanceID, in.Device = web, "vda" }),
			api.CodeRootAttachForbidden, "say --root",
		},
		"root asked for at another device": {
			stoppedWithoutRoot, reserving(func(in *api.AttachmentReserve) { in.InstanceID, in.Root = web, true }), api.CodeConflict, "vdb of instance web is not its root slot",
		},
		"root slot that is taken": {
			instanceState(api.InstanceStopped, web), reserving(func(in *api.AttachmentReserve) { in.InstanceID, in.Device, in.Root = web, "vda", true }),
			api.CodeConflict, "vda of instance web is taken",
		},
		"multiattach root and the policy off": {
			stoppedWithoutRoot, reserving(func(in *api.AttachmentReserve) { in.InstanceID, in.Device, in.Root = web, "vda", true }),
			api.CodePolicyDenied, "the policy multiattach_bootable is off",
		},
		"stale epoch":             {nil, reserving(func(in *api.AttachmentReserve) { in.Epoch = 2 }), api.CodeStaleEpoch, "epoch 2"},
		"fenced host":             {fenceA, reserving(nil), api.CodeStaleEpoch, "epoch 2"},
		"another host's instance": {nil, reserving(func(in *api.AttachmentReserve) { in.InstanceID = db }), api.CodeNotYourHost, "instance db"},
		"host that says another": {nil, func(t *testing.T, s *Store) error {
			return second(s.Attachments.Reserve(t.Context(), as(hostB, 1), reserve(nil)))
		}, api.CodeNotYourHost, "you are host b"},
		"another host's attachment":     {reserved(nil), reserving(func(in *api.AttachmentReserve) { in.Host = hostB }), api.CodeNotYourHost, "instance app"},
		"maker without the shared pool": {inTurn(reserved(atDB), rawSQL("DELETE FROM pools WHERE name = 'nfs' AND host_id = '"+hostA+"'")), reserving(nil), api.CodeUnsupportedDisk, "second host"},
		"unknown volume":                {nil, reserving(func(in *api.AttachmentReserve) { in.VolumeID = id(volumeKind, 99) }), api.CodeNotFound, "no volume"},
		"unknown instance":              {nil, reserving(func(in *api.AttachmentReserve) { in.InstanceID = id(instanceKind, 99) }), api.CodeNotFound, "no instance"},
		"id of another attachment":      {nil, reserving(func(in *api.AttachmentReserve) { in.ID = rootAt }), api.CodeConflict, "attachment with the id " + rootAt},
		"same id, another device":       {reserved(nil), reserving(func(in *api.AttachmentReserve) { in.Device = "vdc" }), api.CodeConflict, "attachment with the id " + first},
		"unknown mode":                  {nil, reserving(func(in *api.AttachmentReserve) { in.Mode = "w" }), api.CodeInvalidArgument, "rw and ro"},
		"odd device":                    {nil, reserving(func(in *api.AttachmentReserve) { in.Device = "../vda" }), api.CodeInvalidArgument, "device"},
		"id that is none":               {nil, reserving(func(in *api.AttachmentReserve) { in.ID = "x" }), api.CodeInvalidArgument, "UUID"},
	})
}

func TestTheFirstAttachmentNeedsNoPolicy(t *testing.T) {
	s := newCluster(t)
	inTurn(policy(api.PolicyMultiattach, false), reserved(nil))(t, s)
}

func TestStepsOfAttachmentsThatAreRefused(t *testing.T) {
	stepping := func(ref string, in api.AttachmentTransition) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error {
			return second(s.Attachments.Transition(t.Context(), nobody, ref, in))
		}
	}
	releasing := func(ref string, in api.AttachmentRelease) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error { return second(s.Attachments.Release(t.Context(), nobody, ref, in)) }
	}
	connect, begin := attachmentStep(api.AttachmentAttaching, api.AttachmentReserved), attachmentStep(api.AttachmentDetaching, api.AttachmentAttached)
	stale, elsewhere, staleRelease, releaseElsewhere := connect, connect, release(true), release(true)
	stale.Epoch, staleRelease.Epoch = 7, 7
	elsewhere.Host, releaseElsewhere.Host = hostB, hostB
	connecting := func(t *testing.T, s *Store) {
		reserved(nil)(t, s)
		must(s.Attachments.Transition(t.Context(), nobody, first, connect))(t)
	}
	checkClusterRefusals(t, map[string]refusal{
		"lost race":                      {attached(nil), stepping(first, connect), api.CodeConflict, `volume disk to instance app is attached, none of ["reserved"]`},
		"reserved to error":              {reserved(nil), stepping(first, attachmentStep(api.AttachmentError, api.AttachmentReserved)), api.CodeInvalidArgument, `"reserved" to "error"`},
		"reserved to attached":           {reserved(nil), stepping(first, attachmentStep(api.AttachmentAttached, api.AttachmentReserved)), api.CodeInvalidArgument, "reserved"},
		"back to reserved":               {attached(nil), stepping(first, attachmentStep(api.AttachmentReserved, api.AttachmentAttached)), api.CodeInvalidArgument, "reserved"},
		"from nowhere":                   {reserved(nil), stepping(first, attachmentStep(api.AttachmentAttaching)), api.CodeInvalidArgument, "missing"},
		"unknown state":                  {reserved(nil), stepping(first, attachmentStep("gone", api.AttachmentReserved)), api.CodeInvalidArgument, "gone"},
		"unknown attachment":             {nil, stepping(first, connect), api.CodeNotFound, "no attachment"},
		"stale epoch":                    {reserved(nil), stepping(first, stale), api.CodeStaleEpoch, "epoch 7"},
		"another host":                   {reserved(nil), stepping(first, elsewhere), api.CodeNotYourHost, "host a's"},
		"begin while migrating":          {moving(rootMigration()), stepping(rootAt, begin), api.CodeMigrationActive, "cannot detach volume root: migration " + move},
		"connect the dst of a migration": {moving(rootMigration()), stepping(rootTo, connect), api.CodeMigrationActive, "reserved attachment"},
		"begin with the running root":    {nil, stepping(rootAt, begin), api.CodeRootDetachForbidden, "cannot detach root device volume root from instance web: it is running"},
		"begin with the paused root":     {instanceState(api.InstancePaused, web), stepping(rootAt, begin), api.CodeRootDetachForbidden, "it is paused"},
		"release what is attached":       {attached(nil), releasing(first, release(false)), api.CodeConflict, "is attached"},
		"release what is being attached": {connecting, releasing(first, release(false)), api.CodeConflict, "is attaching"},
		"release the src of a migration": {moving(rootMigration()), releasing(rootAt, release(true)), api.CodeMigrationActive, "cannot release volume root"},
		"release the dst of a migration": {moving(rootMigration()), releasing(rootTo, release(true)), api.CodeMigrationActive, "cannot release volume root"},
		"release with a stale epoch":     {attached(nil), releasing(first, staleRelease), api.CodeStaleEpoch, "epoch 7"},
		"release of another host's":      {attached(nil), releasing(first, releaseElsewhere), api.CodeNotYourHost, "host a's"},
		"release of what is gone":        {nil, releasing(first, release(true)), api.CodeNotFound, "no attachment"},
		"migrate what is only reserved":  {reserved(nil), migratingDisk, api.CodeStateForbidden, "is reserved"},
		"migrate what is being attached": {connecting, migratingDisk, api.CodeStateForbidden, "is attaching"},
		"migrate with another reserved":  {inTurn(attached(nil), reserved(atDB)), migratingDisk, api.CodeMultiattached, "2 attachments"},
		"migrate with another read-only": {inTurn(attached(nil), attached(func(in *api.AttachmentReserve) { atDB(in); in.Mode = api.ModeRO })), migratingDisk, api.CodeMultiattached, "2 attachments"},
		"forget the volume":              {reserved(nil), func(t *testing.T, s *Store) error { return second(s.Volumes.Forget(t.Context(), nobody, disk)) }, api.CodeVolumeInUse, "attached to instance app as vdb (reserved)"},
		"delete what is reserved, as raw": {reserved(nil), func(t *testing.T, s *Store) error {
			return second(s.Volumes.Transition(t.Context(), nobody, disk, api.VolumeTransition{From: api.VolumeAvailable, To: api.VolumeDeleting}))
		}, api.CodeConflict, "is reserved, no longer available"},
	})
}

func migratingDisk(t *testing.T, s *Store) error {
	in := diskMigration()
	in.SrcAttachmentID, in.DstAttachmentID = first, id(attachmentKind, 9)
	return second(s.Migrations.Register(t.Context(), nobody, in))
}

// Audited refusals add their event and change nothing else.
func TestRefusedForceIsAuditedAndChangesNothing(t *testing.T) {
	force := func(call Call) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error {
			return second(s.Attachments.ForceDelete(t.Context(), call, rootAt))
		}
	}
	abandon := func(call Call, in api.MigrationAbandon) func(*testing.T, *Store) error {
		return func(t *testing.T, s *Store) error { return second(s.Migrations.Abandon(t.Context(), call, move, in)) }
	}
	keepSrc := api.MigrationAbandon{Keep: api.KeepSrc, Reason: "the host burned down"}
	orphaned := inTurn(moving(rootMigration()), fenceA)
	for name, tc := range map[string]refusal{
		"force while the host is up":       {nil, force(nobody), api.CodeStateForbidden, "host a is not fenced"},
		"force while it is orphaned":       {orphaned, force(nobody), api.CodeMigrationActive, "abandon that first"},
		"force by a host":                  {nil, force(as(hostB, 1)), api.CodePermissionDenied, "only an operator"},
		"abandon what is no orphan":        {moving(rootMigration()), abandon(nobody, keepSrc), api.CodeStateForbidden, "it is starting and host a goes on with it"},
		"abandon the unknown":              {nil, abandon(nobody, keepSrc), api.CodeNotFound, "no migration"},
		"abandon by a host":                {orphaned, abandon(as(hostB, 1), keepSrc), api.CodePermissionDenied, "only an operator"},
		"abandon for no reason":            {orphaned, abandon(nobody, api.MigrationAbandon{Keep: api.KeepSrc, Reason: " "}), api.CodeInvalidArgument, "reason"},
		"abandon and keep both":            {orphaned, abandon(nobody, api.MigrationAbandon{Keep: "both", Reason: "x"}), api.CodeInvalidArgument, "src or dst"},
		"keep a dst that was never copied": {orphaned, abandon(nobody, api.MigrationAbandon{Keep: api.KeepDst, Reason: "x"}), api.CodeCopyNotVerified, "it was starting"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			if tc.before != nil {
				tc.before(t, s)
			}
			before := dump(t.Context(), t, s)
			err := tc.do(t, s)
			wantCode(t, err, tc.code, tc.text)
			if e := lastEvent(t, s); e.Result != string(tc.code) {
				t.Errorf("event = %+v", e)
			}
			after := dump(t.Context(), t, s)
			if len(after["events"]) != len(before["events"])+1 {
				t.Errorf("%d events were added", len(after["events"])-len(before["events"]))
			}
			delete(before, "events")
			delete(after, "events")
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the database changed (-before +after):\n%s", diff)
			}
		})
	}
}
