// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// A growing volume's image has its data: an operator who forgets the volume must not be told to
// delete it.
func TestNobodyWhoForgetsAVolumeThatGrowsIsToldToDeleteIt(t *testing.T) {
	for status, deletes := range map[api.VolumeStatus]bool{api.VolumeCreating: true, api.VolumeDeleting: true, api.VolumeError: true, api.VolumeResizing: false} {
		says := endOf(&api.Volume{Name: "db", Status: status})
		if strings.Contains(says, "`volferryctl volume delete db --force`") != deletes || strings.Contains(says, "volferryctl op list") == deletes {
			t.Errorf("%s: %q", status, says)
		}
	}
}
