// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The domain of a forgotten instance still names its disks. A host checks its own domains before it
// attaches a volume, and cannot check those on another host.
func TestAnInstanceIsNotForgottenWhoseVolumeAnotherHostCouldBeGiven(t *testing.T) {
	s := newCluster(t)
	attached(nil)(t, s)
	err := unchanged(t, s, func() error { return second(s.Instances.Forget(t.Context(), nobody, app, Forget{})) })
	wantCode(t, err, api.CodeVolumeInUse, "its volume disk")
	must(s.Attachments.Release(t.Context(), nobody, first, release(true)))(t)
	must(s.Instances.Forget(t.Context(), nobody, app, Forget{}))(t)
}

func TestAnInstanceIsForgottenWhoseVolumesNoOtherHostReaches(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *Store){
		"local pool": attached(func(in *api.AttachmentReserve) { in.VolumeID = local }),
		"nobody else has the pool": inTurn(attached(nil), func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostB, Name: "b", BootID: "first", Pools: []api.Pool{}}))(t)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			before(t, s)
			must(s.Instances.Forget(t.Context(), nobody, app, Forget{}))(t)
		})
	}
}

// The host reports that the disks of an instance are not at the locations of its volumes, for
// example after a definition was restored.
func TestAnInstanceThatDiffersIsForgottenByForceOrByItsHost(t *testing.T) {
	differs := func(t *testing.T, s *Store, what bool) {
		t.Helper()
		report := api.InstanceReport{ID: web, State: api.InstanceStopped, Differs: what}
		if what {
			report.Note = "its disk vda is at /released.raw"
		}
		must(s.Reports.Receive(t.Context(), nobody, api.HostReport{ID: hostA, Name: "a", BootID: "first", Pools: clusterPools(), Instances: []api.InstanceReport{report}}))(t)
	}
	for name, forget := range map[string]func(t *testing.T, s *Store){
		"by force": func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Instances.Forget(t.Context(), nobody, web, Forget{Force: true}))(t)
		},
		"by its host": func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Instances.Forget(t.Context(), as(hostA, 1), web, Forget{}))(t)
		},
		"once it is as it was left": func(t *testing.T, s *Store) {
			t.Helper()
			differs(t, s, false)
			must(s.Instances.Forget(t.Context(), nobody, web, Forget{}))(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			differs(t, s, true)
			err := unchanged(t, s, func() error { return second(s.Instances.Forget(t.Context(), nobody, web, Forget{})) })
			wantCode(t, err, api.CodeChainChanged, "cannot forget instance web: its disk vda is at /released.raw")
			forget(t, s)
		})
	}
}
