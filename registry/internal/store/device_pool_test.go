// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The registry does not know which pool has a device; the host that moves a volume there reports
// it.

// toLV returns the registration of a move of data to a device of the pool thin.
func toLV() api.MigrationRegister {
	in := dataMigration()
	in.Dst = at("/thin/lv")
	return in
}

func TestAVolumeIsInThePoolInWhichItsHostHasFoundTheDevice(t *testing.T) {
	for _, end := range []api.MigrationState{api.MigrationCompleted, api.MigrationCancelled} {
		s := newCluster(t)
		m := must(s.Migrations.Register(t.Context(), nobody, toLV()))(t)
		must(s.Migrations.Transition(t.Context(), nobody, m.ID, step(api.MigrationCompleting, api.MigrationStarting)))(t)
		last := step(end, api.MigrationCompleting)
		last.NotSwitched = end == api.MigrationCancelled
		must(s.Migrations.Transition(t.Context(), nobody, m.ID, last))(t)
		v := must(s.Volumes.Get(t.Context(), data, everyone))(t)
		if moved := end == api.MigrationCompleted; (v.Location == at("/thin/lv")) != moved {
			t.Errorf("%s: the volume is at %+v", end, v.Location)
		}
	}
}

// This holds for every path of the device.
func TestADeviceOfAPoolHasOneVolume(t *testing.T) {
	s := newCluster(t)
	other := at("/thin/lv")
	other.Path = "/dev/mapper/thin-lv"
	must(registerAt(t, s, 1, "a", other))(t)
	wantCode(t, second(s.Migrations.Register(t.Context(), nobody, toLV())), api.CodeDstInUse, "is taken by volume image")
}

// A device outside of pools is not allowed by a type with pools. The registry knows this after the
// host has looked: from the plan of a retype, and when the move is registered.
func TestADeviceIsAPlaceOfATypeByThePoolInWhichItsHostHasFoundIt(t *testing.T) {
	s := newCluster(t)
	typed(api.VolumeTypeCreate{Name: "thinonly", Pools: []string{"thin"}})(t, s)
	retype := api.VolumeRetype{Type: "thinonly", MigrationPolicy: api.RetypeOnDemand, ToPath: "/dev/thin/lv"}
	plan := must(s.Retypes.Plan(t.Context(), data, retype))(t)
	if plan.InPlace || plan.ToPath != retype.ToPath {
		t.Errorf("plan = %+v", plan)
	}
	if err := second(s.Retypes.Retype(t.Context(), nobody, data, retype)); !IsMove(err) {
		t.Errorf("%v is not a refusal of a move", err)
	}
	retype.ToPath = "/srv/lv"
	wantCode(t, second(s.Retypes.Plan(t.Context(), data, retype)), api.CodePolicyDenied)

	in := toLV()
	in.ToType, in.Dst.Path = "thinonly", "/dev/thin/lv"
	in.Dst.Pool, in.Dst.Name = "", ""
	for name, err := range map[string]error{
		"planned":    s.Retypes.CheckDst(t.Context(), plan, hostA, in.Dst),
		"registered": second(s.Migrations.Register(t.Context(), nobody, in)),
	} {
		if api.CodeOf(err) != api.CodePolicyDenied {
			t.Errorf("in no pool, %s: %v, want policy_denied", name, err)
		}
	}
	in.Dst.Pool, in.Dst.Name = "thin", "lv"
	if err := s.Retypes.CheckDst(t.Context(), plan, hostA, in.Dst); err != nil {
		t.Error(err)
	}
	must(s.Migrations.Register(t.Context(), nobody, in))(t)
}
