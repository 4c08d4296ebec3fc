// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func TestADifferenceNamesTheVolumeAndThatThereIsNoDefinition(t *testing.T) {
	dom := &hv.Domain{Name: "tour", State: hv.StateRunning, Persistent: true}
	atts := []api.Attachment{{
		VolumeID: "11112222", VolumeName: "tour-vda", State: api.AttachmentAttached,
		DiskAttachment: api.DiskAttachment{Device: "vda"}, Location: api.Location{Path: "/old/tour.raw"},
	}}
	if got := Differs(dom, atts); !strings.Contains(got, "its definition has no disk vda, which is volume tour-vda at /old/tour.raw") {
		t.Errorf("without the disk: %s", got)
	}
	dom.Persistent = false
	if got := Differs(dom, atts); !strings.Contains(got, "no definition any more") || strings.Contains(got, "--inactive") {
		t.Errorf("after an undefine: %s", got)
	}
}
