// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// A domain that is forgotten still names its disks. Hosts look at their own domains
// before they give one a volume, and cannot look at those of another host.
func TestAnInstanceIsNotForgottenWhoseVolumeAnotherHostCouldBeGiven(t *testing.T) {
	s := newCluster(t)
	attached(nil)(t, s)
	err := unchanged(t, s, func() error { return second(s.ForgetInstance(t.Context(), nobody, app)) })
	wantCode(t, err, api.CodeVolumeInUse, "its volume disk")
	must(s.ReleaseAttachment(t.Context(), nobody, first, release(true)))(t)
	must(s.ForgetInstance(t.Context(), nobody, app))(t)
}

func TestAnInstanceIsForgottenWhoseVolumesNoOtherHostReaches(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *Store){
		"local pool": attached(func(in *api.AttachmentReserve) { in.VolumeID = local }),
		"nobody else has the pool": inTurn(attached(nil), func(t *testing.T, s *Store) {
			t.Helper()
			must(s.Report(t.Context(), nobody, api.HostReport{ID: hostB, Name: "b", BootID: "first", Pools: []api.Pool{}}))(t)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			before(t, s)
			must(s.ForgetInstance(t.Context(), nobody, app))(t)
		})
	}
}
