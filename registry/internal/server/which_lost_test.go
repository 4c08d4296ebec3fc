// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/store"
)

// The host of a volume is fenced. The answer has the registry's knowledge, states its limits, and
// names no good copy.
func TestWhichOfAVolumeOfAFencedHostIsTheRegistrysWordAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		if _, err := s.store.Hosts.Fence(t.Context(), store.Call{}, "a", api.HostFence{Evidence: "off", EvenIfUp: true}); err != nil {
			t.Fatal(err)
		}
		for name, also := range map[string]string{"data": "to instance web", "free": "by the registry alone", movedID: "migration " + moveID} {
			if name == movedID {
				name = expect.Value(s.store.Migrations.Get(t.Context(), moveID, store.Viewer{}))(t).VolumeID
			}
			var w api.Which
			expect.OK(t, json.Unmarshal(s.ok(t, "GET", "/v1/volumes/"+name+"/which", ""), &w))
			if w.Authoritative != nil || w.Agree || w.Registry == nil || !strings.Contains(w.Explanation, "host a, which has the volume, is fenced") || !strings.Contains(w.Explanation, also) {
				t.Errorf("%s: %+v, want no good copy, the fenced host and %q", name, w, also)
			}
		}
		if got := s.begin(t, "GET", "/v1/volumes/nope/which", "", "").code(); got != api.CodeNotFound {
			t.Errorf("unknown: %s", got)
		}
	})
}
