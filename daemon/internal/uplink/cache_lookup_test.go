// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestVolumesOfThisHostAreKnownAlsoWhereTheyAreAttachedNowhere(t *testing.T) {
	bubble(t, func(w *world) {
		u := w.open()
		u.view.Volumes = []api.Volume{{Name: "byname", Host: "alpha"}, {Name: "byid", Host: thisHost}, {Name: "other", Host: "beta"}, {Name: "nowhere"}}
		got := u.VolumesHere()
		if len(got) != 2 || got[0].Name != "byname" || got[1].Name != "byid" {
			t.Errorf("got %+v, want byname and byid", got)
		}
	})
}
