// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// cloneOver registers a linked clone of host a in the shared pool, over a base image.
func cloneOver(t *testing.T, s *Store, base string) {
	t.Helper()
	l := at("/nfs/clone.qcow2")
	l.Format, l.Backing = api.FormatQcow2, api.NewBacking([]api.BaseImage{{Path: "/nfs/top.qcow2", Format: api.FormatQcow2}, {Path: base, Format: api.FormatRaw}})
	late(t, s, 1, "a", l)
}

func TestALinkedCloneIsReachedByOtherHostsWithAllItsBaseImagesOnly(t *testing.T) {
	for base, reached := range map[string]bool{
		"/nfs/base.img": true, "/slow/base.img": false, "/elsewhere/base.img": false, "/nfs-of-a/base.img": false,
	} {
		t.Run(base, func(t *testing.T) {
			s := newCluster(t)
			cloneOver(t, s, base)
			_, err := s.Attachments.Reserve(t.Context(), as(hostB, 1), reserve(func(in *api.AttachmentReserve) {
				atDB(in)
				in.VolumeID = id(volumeKind, 61)
			}))
			movers := must(s.Volumes.Movers(t.Context(), id(volumeKind, 61), "slow"))(t)
			if !reached {
				wantCode(t, err, api.CodeNotYourHost, "all its base images")
			} else if err != nil {
				t.Error(err)
			}
			if slices.Contains(movers, hostB) != reached || !slices.Contains(movers, hostA) {
				t.Errorf("it may be moved by %v, which are to be host a, and host b: %v", movers, reached)
			}
		})
	}
}

func TestACloneOverAnImageOfAForgottenHostIsInheritedByNobody(t *testing.T) {
	for base, inherited := range map[string]bool{"/nfs/base.img": true, "/slow/base.img": false} {
		t.Run(base, func(t *testing.T) {
			s := newCluster(t)
			cloneOver(t, s, base)
			var heirs int
			err := s.sqlite.Read.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM volumes WHERE id = ?2 AND "+heirOf+" IS NOT NULL", hostA, id(volumeKind, 61)).Scan(&heirs)
			if err != nil || (heirs == 1) != inherited {
				t.Errorf("%d heirs, %v", heirs, err)
			}
		})
	}
}
