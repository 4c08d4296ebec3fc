// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The site of newSite with host a fenced and its instance gone; common is a volume
// of it in the pool that b has too.
func goneSite(t *testing.T) *Store {
	t.Helper()
	s := newSite(t)
	in := api.VolumeRegister{ID: id(volumeKind, 3), Name: "common", Status: api.VolumeAvailable, Host: hostA, Location: at("/nfs/common")}
	must(s.RegisterVolume(t.Context(), nobody, in))(t)
	rawSQL("INSERT INTO tasks (id, host_id, who, method, path, request, state, created_us) VALUES ('op-1', '"+hostA+"', 'anna', 'POST', '/v1/x', x'', 'queued', 0)")(t, s)
	must(s.RegisterMigration(t.Context(), nobody, dataMigration()))(t)
	must(s.TransitionMigration(t.Context(), nobody, dataMigration().ID, step(api.MigrationCancelled, api.MigrationStarting)))(t)
	must(s.FenceHost(t.Context(), nobody, "a", cut))(t)
	must(s.ForgetInstance(t.Context(), nobody, web, Forget{}))(t)
	return s
}

func TestAHostThatIsGoneForGoodIsForgotten(t *testing.T) {
	s := goneSite(t)
	wantCode(t, unchangedBut(t, s, func() error { return second(s.ForgetHost(t.Context(), nobody, "a", false)) }), api.CodeConflict, "data, root")
	if h := must(s.ForgetHost(t.Context(), nobody, "a", true))(t); h.ID != hostA || h.Status != api.HostFenced {
		t.Errorf("host = %+v", h)
	}
	if e := lastEvent(t, s); e.What != "host.forget" || e.Host != "a" {
		t.Errorf("event = %+v", e)
	}
	if hosts := must(s.Hosts(t.Context()))(t); len(hosts) != 1 || hosts[0].Name != "b" {
		t.Errorf("hosts = %+v", hosts)
	}
	if all := must(s.Volumes(t.Context(), everyone))(t); len(all) != 1 || all[0].Name != "common" || all[0].Host != "b" {
		t.Errorf("volumes = %+v; want common, at host b", all)
	}
	// Whatever comes back with its id is new, and what it believed is not believed.
	wantCode(t, post(t.Context(), s, as(hostA, 2)), api.CodeStaleEpoch, "does not know")
}

func TestAHostThatHasSomethingLeftIsNotForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(t *testing.T, s *Store)
		code   api.Code
		text   string
	}{
		"not fenced": {func(*testing.T, *Store) {}, api.CodeStateForbidden, "not fenced"},
		"instance":   {func(t *testing.T, s *Store) { must(s.FenceHost(t.Context(), nobody, "a", cut))(t) }, api.CodeConflict, "instances of it left (web)"},
		"shelf": {func(t *testing.T, s *Store) {
			must(s.Report(t.Context(), nobody, api.HostReport{ID: hostA, Name: "a", BootID: "first", Instances: []api.InstanceReport{{ID: web, State: api.InstanceStopped}}}))(t)
			offloaded(web)(t, s)
			must(s.FenceHost(t.Context(), nobody, "a", cut))(t)
		}, api.CodeConflict, "instance unshelve"},
		"migration": {func(t *testing.T, s *Store) {
			must(s.ForgetInstance(t.Context(), nobody, web, Forget{}))(t)
			must(s.RegisterMigration(t.Context(), nobody, dataMigration()))(t)
			must(s.FenceHost(t.Context(), nobody, "a", cut))(t)
		}, api.CodeConflict, "abandon"},
		"fence of a backup": {func(t *testing.T, s *Store) {
			must(s.FenceHost(t.Context(), nobody, "a", cut))(t)
			must(s.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)
		}, api.CodeStateForbidden, "fence it once more"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			tc.before(t, s)
			wantCode(t, unchangedBut(t, s, func() error { return second(s.ForgetHost(t.Context(), nobody, "a", true)) }), tc.code, tc.text)
		})
	}
	s := goneSite(t)
	wantCode(t, second(s.ForgetHost(t.Context(), as(hostB, 1), "a", true)), api.CodePermissionDenied, "")
}

// unchangedBut runs do and expects that only the trail, which has refusals, grew.
func unchangedBut(t *testing.T, s *Store, do func() error) error {
	t.Helper()
	before := dump(t.Context(), t, s)
	err := do()
	after := dump(t.Context(), t, s)
	before["events"], after["events"] = nil, nil
	for table := range before {
		if len(before[table]) != len(after[table]) {
			t.Errorf("table %s changed", table)
		}
	}
	return err
}
