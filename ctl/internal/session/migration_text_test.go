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
