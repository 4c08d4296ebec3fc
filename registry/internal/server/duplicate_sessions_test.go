// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestTwoDaemonsOfOneHostAreToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		told := func() bool { return strings.Contains(string(s.ok(t, "GET", "/v1/status", "")), `"daemons of a"`) }
		copied := speaker{cert: certificate(hostID, "a"), epoch: "1"}
		for range 2 {
			if told() {
				t.Error("they are told of before they took turns twice")
			}
			for _, session := range []string{"one", "two"} {
				s.speak(t, copied, "GET", "/v1/hosts/"+hostID+"/tasks?session="+session, "")
			}
		}
		wantError(t, s.speak(t, copied, "GET", "/v1/hosts/"+hostID+"/tasks?session=one", ""), api.CodeConflict)
		if !told() {
			t.Error("the status does not tell of them")
		}
		if trail := s.trail(t); strings.Count(trail, `"host.two"`) != 1 {
			t.Errorf("the trail is %s", trail)
		}
	})
}
