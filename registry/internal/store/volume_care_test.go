// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// Otherwise the host could set any size for another host's guest. The volume disk is in the care of
// host a and in a pool that b also has.
func TestAHostSetsNoSizeOrIdentityOfAVolumeThatAnotherHostUses(t *testing.T) {
	attaching := func(t *testing.T, s *Store) {
		reserved(atDB)(t, s)
		step := attachmentStep(api.AttachmentAttaching, api.AttachmentReserved)
		step.Host = hostB
		must(s.Attachments.Transition(t.Context(), nobody, next, step))(t)
	}
	for scene, c := range map[string]struct {
		setup func(*testing.T, *Store)
		host  string
		code  api.Code
		part  string
	}{
		"free, by the host that has it in its care": {host: hostA},
		"free, by a host that reaches it":           {nil, hostB, api.CodeNotYourHost, "in the care of host a"},
		"at another host, by care":                  {attached(atDB), hostA, api.CodeNotYourHost, "at instance db of host b, and you are host a"},
		"at another host, reserved there":           {reserved(atDB), hostA, api.CodeNotYourHost, "at instance db of host b, and you are host a"},
		"at its host, by reach":                     {attached(nil), hostB, api.CodeNotYourHost, "at instance app of host a, and you are host b"},
		"reserved beside another host":              {inTurn(attached(nil), reserved(atDB)), hostB, api.CodeStateForbidden, "to instance db is reserved"},
		"attached beside another host":              {inTurn(attached(nil), attached(atDB)), hostB, api.CodeNotYourHost, "also at instance app of host a"},
		"another host beside it":                    {inTurn(attached(nil), reserved(atDB)), hostA, api.CodeNotYourHost, "also at instance db of host b"},
		"reserved":                                  {reserved(atDB), hostB, api.CodeStateForbidden, "to instance db is reserved"},
		"being attached":                            {attaching, hostB, "", ""},
		"attached":                                  {attached(atDB), hostB, "", ""},
	} {
		t.Run(scene, func(t *testing.T) {
			s := newCluster(t)
			if c.setup != nil {
				c.setup(t, s)
			}
			v := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
			for _, call := range []func() error{
				func() error {
					return second(s.Volumes.Grow(t.Context(), as(c.host, 1), disk, api.VolumeGrow{FromBytes: v.SizeBytes, SizeBytes: 1 << 60}))
				},
				func() error {
					return second(s.Volumes.Identify(t.Context(), as(c.host, 1), disk, api.VolumeIdentify{Path: v.Location.Path, Identity: "naa.a"}))
				},
			} {
				if c.code == "" {
					expect.OK(t, call())
					continue
				}
				wantCode(t, unchanged(t, s, call), c.code, c.part)
			}
		})
	}
}
