// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// goneSite returns newSite with host a fenced and without its instance; common is its volume in a
// pool that b also has.
func goneSite(t *testing.T) *Store {
	t.Helper()
	s := newSite(t)
	in := api.VolumeRegister{ID: id(volumeKind, 3), Name: "common", Status: api.VolumeAvailable, Host: hostA, Location: at("/nfs/common")}
	must(s.Volumes.Register(t.Context(), nobody, in))(t)
	rawSQL("INSERT INTO tasks (id, host_id, who, method, path, request, state, created_us) VALUES ('op-1', '"+hostA+"', 'anna', 'POST', '/v1/x', x'', 'queued', 0)")(t, s)
	must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t)
	must(s.Migrations.Transition(t.Context(), nobody, dataMigration().ID, step(api.MigrationCancelled, api.MigrationStarting)))(t)
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	must(s.Instances.Forget(t.Context(), nobody, web, Forget{}))(t)
	return s
}

func TestAHostThatIsGoneForGoodIsForgotten(t *testing.T) {
	s := goneSite(t)
	wantCode(t, unchangedBut(t, s, func() error { return second(s.Hosts.Forget(t.Context(), nobody, "a", false)) }), api.CodeConflict, "data, root")
	if h := must(s.Hosts.Forget(t.Context(), nobody, "a", true))(t); h.ID != hostA || h.Status != api.HostFenced {
		t.Errorf("host = %+v", h)
	}
	if e := lastEvent(t, s); e.What != "host.forget" || e.Host != "a" {
		t.Errorf("event = %+v", e)
	}
	if hosts := must(s.Hosts.All(t.Context()))(t); len(hosts) != 1 || hosts[0].Name != "b" {
		t.Errorf("hosts = %+v", hosts)
	}
	if all := must(s.Volumes.All(t.Context(), everyone))(t); len(all) != 1 || all[0].Name != "common" || all[0].Host != "b" {
		t.Errorf("volumes = %+v; want common, at host b", all)
	}
	// A host that returns with its id is new, and its old epoch is not accepted.
	wantCode(t, post(t.Context(), s, as(hostA, 2)), api.CodeStaleEpoch, "does not know")
}

func TestAHostThatHasSomethingLeftIsNotForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(t *testing.T, s *Store)
		code   api.Code
		text   string
	}{
		"not fenced": {func(*testing.T, *Store) {}, api.CodeStateForbidden, "not fenced"},
		"instance":   {func(t *testing.T, s *Store) { must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t) }, api.CodeConflict, "instances of it left (web)"},
		"shelf": {func(t *testing.T, s *Store) {
			must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostA, Name: "a", BootID: "first", Instances: []api.InstanceReport{{ID: web, State: api.InstanceStopped}}}))(t)
			offloaded(web)(t, s)
			must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
		}, api.CodeConflict, "instance unshelve"},
		"migration": {func(t *testing.T, s *Store) {
			must(s.Instances.Forget(t.Context(), nobody, web, Forget{}))(t)
			must(s.Migrations.Register(t.Context(), nobody, dataMigration()))(t)
			must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
		}, api.CodeConflict, "abandon"},
		"fence of a backup": {func(t *testing.T, s *Store) {
			must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
			must(s.Marks.AcceptRestore(t.Context(), nobody, acceptedBlind))(t)
		}, api.CodeStateForbidden, "fence it once more"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			tc.before(t, s)
			wantCode(t, unchangedBut(t, s, func() error { return second(s.Hosts.Forget(t.Context(), nobody, "a", true)) }), tc.code, tc.text)
		})
	}
	s := goneSite(t)
	wantCode(t, second(s.Hosts.Forget(t.Context(), as(hostB, 1), "a", true)), api.CodePermissionDenied, "")
}

// unchangedBut runs do and requires that only the trail has more rows, for refusals.
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

// The lost host has reported the path of each volume.
func TestAnHeirGetsAVolumeAtThePathOfItsOwnPoolAlone(t *testing.T) {
	for _, tc := range []struct {
		pool, name, path string
		inherited        bool
	}{
		{"nfs", "v", "/nfs/v", true},
		{"nfs", "v", "", true}, // it has not been made
		{"nfs", "v", "/nfs/sub/v", false},
		{"nfs", "v", "/nfs/w", false},
		{"nfs", "v", "/nfs/../etc/shadow", false},
		{"nfs", "v", "/etc/shadow", false},
		{"nfs", "v", "/other/nfs/v", false},
		{"luns", "unit:0:0:1", "/dev/disk/by-path/ip-192.0.2.1-lun-1", true},
		{"luns", "unit:0:0:1", "/dev/sda", false},
		{"luns", "unit:0:0:1", "/etc/shadow", false},
	} {
		t.Run(tc.path, func(t *testing.T) {
			s := newCluster(t)
			for n, name := range []string{"a", "b"} {
				pools := append(clusterPools(), api.Pool{Name: "luns", Type: "iscsi", Path: "/dev/disk/by-path", Active: true, Shared: true})
				must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: id(hostKind, n+1), Name: name, BootID: "first", Epoch: 1, Pools: pools}))(t)
			}
			late(t, s, 1, "a", api.Location{Pool: tc.pool, Name: tc.name, Path: "/nfs/other", Format: api.FormatRaw, SizeBytes: 512})
			// As if the registry had accepted any path.
			if _, err := s.sqlite.Write.ExecContext(t.Context(), "UPDATE locations SET path = ? WHERE volume_id = ?", tc.path, id(volumeKind, 61)); err != nil {
				t.Fatal(err)
			}
			var heirs int
			err := s.sqlite.Read.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM volumes WHERE id = ?2 AND "+heirOf+" IS NOT NULL", hostA, id(volumeKind, 61)).Scan(&heirs)
			if err != nil || (heirs == 1) != tc.inherited {
				t.Errorf("%d heirs, %v", heirs, err)
			}
		})
	}
}
