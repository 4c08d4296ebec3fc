// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Another volume is the root now, and has its address and its boot order.
func TestAVolumeThatWasTheRootIsUnshelvedWithoutThePlaceOfTheRoot(t *testing.T) {
	now := "the root of now"
	got := claimed{ShelvedInstance: api.ShelvedInstance{Instance: api.Instance{
		BlockDeviceMappings: []api.BlockDeviceMapping{{Device: "vda", BootIndex: new(int), VolumeID: &now}},
		DetachedDisks: []api.DetachedDisk{
			{VolumeID: "root", Device: "vda", Slot: api.SlotDefinition{Disk: "of the root"}},
			{VolumeID: "data", Device: "vdb", Slot: api.SlotDefinition{Disk: "of a data volume"}},
		},
	}}}
	for volume, want := range map[string]hv.DiskSpec{
		"root": {Target: "vdc", Bus: "virtio", Slot: "of the root", NewAddress: true, NoBootOrder: true},
		"data": {Target: "vdc", Bus: "virtio", Slot: "of a data volume"},
	} {
		spec := diskFor(got, api.Attachment{VolumeID: volume, DiskAttachment: api.DiskAttachment{Device: "vdc"}}, api.Volume{ID: volume}, []hv.Image{{}})
		if diff := cmp.Diff(want, spec); diff != "" {
			t.Errorf("%s (-want +got)\n%s", volume, diff)
		}
	}
}
