// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// Before the report it is unknown whether other hosts have the pool, and who may use it.
func TestAPlaceInAPoolThatTheHostHasNotReportedIsRefused(t *testing.T) {
	vol := storetest.DataRegister()
	vol.ID, vol.Name, vol.Location = id(volumeKind, 77), "late", at("/late/vol")
	mig := rootMigration()
	mig.Dst = at("/late/root")
	for name, register := range map[string]func(*testing.T, *Store) error{
		"a volume":    func(t *testing.T, s *Store) error { return second(s.Volumes.Register(t.Context(), nobody, vol)) },
		"a migration": func(t *testing.T, s *Store) error { return second(s.Migrations.Register(t.Context(), nobody, mig)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			err := register(t, s)
			if api.CodeOf(err) != api.CodeNotFound || api.AsError(err).Details[api.DetailReportFirst] != true {
				t.Errorf("got %v, want not_found that asks for a report", err)
			}
			must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostA, Name: "a", BootID: "first", Epoch: 1, Pools: []api.Pool{
				{Name: "fast", Type: "dir", Path: "/fast", Active: true}, {Name: "late", Type: "dir", Path: "/late", Active: true},
			}}))(t)
			if err := register(t, s); err != nil {
				t.Errorf("after the report: %v", err)
			}
		})
	}
}
