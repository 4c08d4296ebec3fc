// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/store"
)

// A running move causes such a difference by itself.
func TestAGuestOnAnotherImageThanItsVolumeNeedsAnOperatorUnlessItsVolumeMoves(t *testing.T) {
	s := newSite(t)
	s.fill(t)
	status := func(i api.InstanceReport) (named bool, needs int) {
		t.Helper()
		r := api.HostReport{ID: hostID, Name: "a", Version: "1", BootID: "b", Epoch: 1, Instances: []api.InstanceReport{i}}
		s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", string(expect.Value(json.Marshal(r))(t)))
		var st api.Status
		decode(t, s.ok(t, "GET", "/v1/status", ""), &st)
		return slices.ContainsFunc(st.Parts, func(c api.Check) bool {
			return c.Name == "domains" && c.Status == "fail" && strings.Contains(c.Message, "web of host a")
		}), st.NeedsOperator
	}
	differs := api.InstanceReport{ID: instanceID, State: api.InstanceRunning, Note: "the running guest's disk is elsewhere", Differs: true}
	if named, needs := status(differs); named || needs != 0 {
		t.Errorf("while its volume moves: named %t, %d need an operator", named, needs)
	}
	var m api.Migration
	decode(t, s.ok(t, "GET", "/v1/migrations/"+moveID, ""), &m)
	over := api.MigrationTransition{From: []api.MigrationState{m.State}, To: api.MigrationCancelled, Host: "a", Epoch: 1, OpID: "o"}
	expect.Value(s.store.Migrations.Transition(t.Context(), store.Call{}, moveID, over))(t)
	if named, needs := status(differs); !named || needs != 1 {
		t.Errorf("at rest: named %t, %d need an operator", named, needs)
	}
	var i api.Instance
	if decode(t, s.ok(t, "GET", "/v1/instances/"+instanceID, ""), &i); !i.Differs {
		t.Error("the instance does not say that it differs")
	}
	differs.State = api.InstanceStopped
	if named, needs := status(differs); named || needs != 0 {
		t.Errorf("stopped: named %t, %d need an operator", named, needs)
	}
}
