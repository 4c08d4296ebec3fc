// SPDX-License-Identifier: Apache-2.0

package diskspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/diskspec"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func TestTheDiskOfAnAttachment(t *testing.T) {
	img := hv.Image{Type: hv.SourceFile, Format: "raw", Path: "/a"}
	for name, c := range map[string]struct {
		at     api.DiskAttachment
		shared bool
		slot   *api.SlotDefinition
		want   hv.DiskSpec
	}{
		"new":       {at: api.DiskAttachment{Device: "vdb", Mode: api.ModeRW}, want: hv.DiskSpec{Target: "vdb", Bus: "virtio", Serial: "v", Image: img}},
		"read-only": {at: api.DiskAttachment{Device: "vdb", Mode: api.ModeRO}, want: hv.DiskSpec{Target: "vdb", Bus: "virtio", Serial: "v", Image: img, ReadOnly: true}},
		"shared SCSI": {
			at: api.DiskAttachment{Device: "sda", Mode: api.ModeRW}, shared: true,
			want: hv.DiskSpec{Target: "sda", Bus: "scsi", Serial: "v", Image: img, Shareable: true},
		},
		"in a slot with another serial": {
			at: api.DiskAttachment{Device: "vda", Mode: api.ModeRW}, slot: &api.SlotDefinition{Disk: "<disk/>"},
			want: hv.DiskSpec{Target: "vda", Bus: "virtio", Image: img, Slot: "<disk/>"},
		},
		"in a slot with a volume's serial": {
			at: api.DiskAttachment{Device: "vda", Mode: api.ModeRW}, slot: &api.SlotDefinition{Disk: "<disk/>", SerialOfVolume: true},
			want: hv.DiskSpec{Target: "vda", Bus: "virtio", Serial: "v", Image: img, Slot: "<disk/>"},
		},
	} {
		got := diskspec.New("v", c.at, c.shared, []hv.Image{img}, c.slot)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if made := (&hv.Disk{ReadOnly: got.ReadOnly}); !diskspec.InMode(made, c.at) {
			t.Errorf("%s: the disk that was made is %s", name, diskspec.ModeOf(made))
		}
	}
}
