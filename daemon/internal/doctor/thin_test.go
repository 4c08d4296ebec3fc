// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/thin"
)

// TestDoctorWarnsOfAThinPoolBeforeItIsFull, for its data and its metadata.
func TestDoctorWarnsOfAThinPoolBeforeItIsFull(t *testing.T) {
	for name, c := range map[string]struct {
		usage          thin.Usage
		status, advice string
	}{
		"has room":          {thin.Usage{Data: 0.79, Metadata: 0.79}, "ok", ""},
		"data":              {thin.Usage{Data: 0.8, Metadata: 0.1}, "warn", "lvextend --size +SIZE vg/pool"},
		"metadata":          {thin.Usage{Data: 0.9, Metadata: 0.8}, "warn", "lvextend --poolmetadatasize +SIZE vg/pool"},
		"takes no new data": {thin.Usage{Data: 1, Metadata: 0.1, Trouble: "it has no room for data"}, "fail", "lvextend"},
		"has failed":        {thin.Usage{Trouble: "it has failed"}, "fail", "lvconvert --repair vg/pool"},
	} {
		got := thinChecks([]thin.Pool{{Name: "vg/pool", Usage: c.usage}})
		if len(got) != 1 || got[0].Name != "thin pool vg/pool" || got[0].Status != c.status || !strings.Contains(got[0].Advice, c.advice) || (c.advice == "") != (got[0].Advice == "") {
			t.Errorf("%s: %+v, want %s with advice %q", name, got, c.status, c.advice)
		}
		if !strings.Contains(got[0].Message, c.usage.Trouble) {
			t.Errorf("%s: %q does not say %q", name, got[0].Message, c.usage.Trouble)
		}
	}
}
