// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// sharing returns a domain of host a with one disk, an image in a pool of both hosts.
func sharing(n int, edit func(*api.InstanceRegister)) api.InstanceRegister {
	in := api.InstanceRegister{
		ID: id(instanceKind, 20+n), Name: "node" + string(rune('0'+n)), Host: "a", State: api.InstanceRunning,
		Disks: []api.AdoptedDisk{{
			VolumeID: id(volumeKind, 20), VolumeName: "quorum", AttachmentID: id(attachmentKind, 20+n), Device: "vdb", Mode: api.ModeRW,
			Location: at("/nfs/quorum"), Shareable: true, Type: "gold",
		}},
	}
	if edit != nil {
		edit(&in)
	}
	return in
}

func TestDomainsThatShareADiskAreAdoptedOneAfterTheOther(t *testing.T) {
	s := newCluster(t)
	must(s.Instances.Register(t.Context(), nobody, sharing(1, nil)))(t)
	must(s.Instances.Register(t.Context(), nobody, sharing(2, nil)))(t)
	must(s.Instances.Register(t.Context(), nobody, sharing(3, func(in *api.InstanceRegister) { in.Host = "b" })))(t)
	v := must(s.Volumes.Get(t.Context(), "quorum", everyone))(t)
	if v.Type != "gold" || !v.Multiattach || len(v.Attachments) != 3 {
		t.Errorf("the volume is of type %s with %d attachments", v.Type, len(v.Attachments))
	}
}

func TestADiskThatIsNotSharedIsOfTheDefaultType(t *testing.T) {
	s := newCluster(t)
	must(s.Instances.Register(t.Context(), nobody, sharing(1, func(in *api.InstanceRegister) { in.Disks[0].Shareable = false })))(t)
	if v := must(s.Volumes.Get(t.Context(), "quorum", everyone))(t); v.Type != DefaultType {
		t.Errorf("the volume is of type %s", v.Type)
	}
}

func TestASharedDiskThatCannotBeAdoptedSaysTheWayOut(t *testing.T) {
	for name, c := range map[string]struct {
		first, second func(*api.InstanceRegister)
		after         func(*testing.T, *Store)
		code          api.Code
		says          string
	}{
		"the type is not multiattach": {
			first: func(in *api.InstanceRegister) { in.Disks[0].Type = "" },
			code:  api.CodeVolumeInUse, says: "`volferryctl instance forget node1`, `volferryctl volume retype quorum --type TYPE`",
		},
		"the second does not share": {
			second: func(in *api.InstanceRegister) { in.Disks[0].Shareable = false },
			code:   api.CodeUnsupportedDisk, says: "`virsh detach-disk --persistent node2 vdb`), adopt the instance without it (`volferryctl instance adopt node2`), and attach the volume, which shares it (`volferryctl volume attach quorum node2 --device vdb`)",
		},
		"the second does not share, and only reads": {
			second: func(in *api.InstanceRegister) { in.Disks[0].Shareable, in.Disks[0].Mode = false, api.ModeRO },
			code:   api.CodeUnsupportedDisk, says: "--device vdb --mode ro`",
		},
		"the second does not share its root": {
			second: func(in *api.InstanceRegister) { in.Disks[0].Shareable, in.Disks[0].BootIndex = false, new(int) },
			code:   api.CodeUnsupportedDisk, says: "`virsh define` with the instance off",
		},
		"the policy is off": {after: policy(api.PolicyMultiattach, false), code: api.CodePolicyDenied, says: api.PolicyMultiattach},
		"twice in one domain": {
			second: func(in *api.InstanceRegister) {
				again := in.Disks[0]
				again.Device, again.AttachmentID = "vdc", id(attachmentKind, 30)
				in.Disks = append(in.Disks, again)
			},
			code: api.CodeConflict, says: "already",
		},
		"out of reach": {
			first: func(in *api.InstanceRegister) { in.Disks[0].Location = at("/fast/quorum") },
			second: func(in *api.InstanceRegister) {
				in.Host, in.Disks[0].Location = "b", at("/fast/quorum")
			},
			code: api.CodeUnsupportedDisk, says: "in no pool that both hosts have",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			must(s.Instances.Register(t.Context(), nobody, sharing(1, c.first)))(t)
			if c.after != nil {
				c.after(t, s)
			}
			_, err := s.Instances.Register(t.Context(), nobody, sharing(2, c.second))
			wantCode(t, err, c.code, c.says)
		})
	}
}

// The advice in the error works.
func TestTheWayOutOfASharedDiskOfTheWrongTypeWorks(t *testing.T) {
	s := newCluster(t)
	plain := func(in *api.InstanceRegister) { in.Disks[0].Type = "" }
	must(s.Instances.Register(t.Context(), nobody, sharing(1, func(in *api.InstanceRegister) {
		plain(in)
		in.Disks[0].Location = at("/fast/quorum")
	})))(t)
	must(s.Instances.Forget(t.Context(), nobody, "node1", Forget{}))(t)
	must(s.Retypes.Retype(t.Context(), nobody, "quorum", api.VolumeRetype{Type: "gold"}))(t)
	for n := range 2 {
		must(s.Instances.Register(t.Context(), nobody, sharing(n+1, func(in *api.InstanceRegister) {
			plain(in)
			in.Disks[0].Location = at("/fast/quorum")
		})))(t)
	}
	wantVolume(t, s, "quorum", api.VolumeInUse, 2)
}
