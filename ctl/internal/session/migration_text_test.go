// SPDX-License-Identifier: Apache-2.0

package session

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestTheExposureOfAGuestThatDidNotRunSaysSo(t *testing.T) {
	ms := 12.0
	for name, c := range map[string]struct {
		stall *float64
		want  string
	}{
		"running": {&ms, "what the guest wrote in that time was in the overlay alone"},
		"stopped": {nil, "whatever was written in that time was in the overlay alone"},
	} {
		m := &api.Migration{State: api.MigrationCompleted, ExposedSeconds: 4.4}
		m.StallMS.Start = c.stall
		if text := strings.Join(completedText(m), "\n"); !strings.Contains(text, c.want) {
			t.Errorf("%s: %q is not in:\n%s", name, c.want, text)
		}
	}
}

func TestACancelSaysWhatHappenedToTheDestination(t *testing.T) {
	const deleted, unwritten = "fast/db.raw, which the move had made, was deleted", "nothing more is written to "
	for name, c := range map[string]struct {
		dst            api.Location
		method, remark string
		want           string
	}{
		"made in a pool":          {api.Location{Pool: "fast", Name: "db.raw"}, api.MethodOverlay, "", deleted},
		"left":                    {api.Location{Pool: "fast", Name: "db.raw"}, api.MethodOverlay, "/fast/db.raw is left as it is", unwritten},
		"at a path":               {api.Location{Path: "/dev/sdb"}, api.MethodOverlay, "", unwritten},
		"by the registry's words": {api.Location{Pool: "fast", Name: "db.raw"}, api.MethodSave, "", unwritten},
	} {
		m := &api.Migration{State: api.MigrationCancelled, Method: c.method, Dst: c.dst, Remark: c.remark}
		text := strings.Join(OutcomeText(m), "\n")
		if !strings.Contains(text, c.want) || !strings.Contains(text, c.remark) {
			t.Errorf("%s: %q is not in:\n%s", name, c.want, text)
		}
	}
}
