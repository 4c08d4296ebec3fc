// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/migrate/which"
	"github.com/volferry/volferry/internal/api"
)

func TestDoctorNamesTheVolumesThatRegistryAndJournalHaveAtTwoPlaces(t *testing.T) {
	var (
		found []which.Contradiction
		fail  error
	)
	d := &Doctor{Contradictions: func(context.Context) ([]which.Contradiction, error) { return found, fail }}
	one := func(status, message, advice string, is bool) {
		t.Helper()
		checks, contradicted := d.records(t.Context())
		if len(checks) != 1 || checks[0].Status != status || message != "" && checks[0].Message != message || advice != "" && checks[0].Advice != advice {
			t.Errorf("%+v, want one %s", checks, status)
		}
		if contradicted(api.Volume{ID: "v1"}) != is || contradicted(api.Volume{ID: "v2"}) {
			t.Errorf("volume v1 is contradicted: %t, want %t, and v2 never", !is, is)
		}
	}
	one("ok", "", "", false)
	found = []which.Contradiction{{Volume: api.Volume{ID: "v1"}, Witnesses: "two places", WayOut: "the way out"}}
	one("fail", "two places", "the way out", true)
	found, fail = nil, errors.New("registry away")
	one("warn", "", "", false)
}
