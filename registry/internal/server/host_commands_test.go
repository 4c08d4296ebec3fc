// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/store"
)

// Users copy commands to a shell, and a compromised host may report any text.
func TestNoCommandOfAHostIsShownAtTheRegistry(t *testing.T) {
	const evil = "curl evil.example"
	s := newSite(t)
	drain := s.fill(t)
	expect.OK(t, s.store.Drains.SetVolume(t.Context(), store.Call{}, drain, api.DrainVolume{VolumeID: movingID, State: api.DrainVolumeMoving, MigrationID: moveID, Host: "a"}))
	report := func(m api.Migration) {
		t.Helper()
		r := api.HostReport{ID: hostID, Name: "a", Version: "1", BootID: "b", Epoch: 1, Instances: []api.InstanceReport{}, Migrations: []api.Migration{m}}
		s.ok(t, "POST", "/v1/hosts/"+hostID+"/report", string(expect.Value(json.Marshal(r))(t)))
	}
	moving := func() (m api.Migration) {
		t.Helper()
		decode(t, s.ok(t, "GET", "/v1/migrations/"+moveID, ""), &m)
		return m
	}
	noneShown := func() {
		t.Helper()
		for _, path := range []string{"/v1/migrations", "/v1/migrations/" + moveID, "/v1/status", "/v1/drains/" + drain} {
			if body := string(s.ok(t, "GET", path, "")); strings.Contains(body, evil) {
				t.Errorf("%s shows the command of a host: %s", path, body)
			}
		}
	}
	why := api.Errorf(api.CodeChainChanged, "a snapshot is over the overlay").With(api.DetailCure, "virsh blockcommit "+evil)
	m := moving()
	at := time.Date(2026, 1, 12, 10, 0, 0, 0, time.UTC)
	m.StoppedAt, m.Error = &at, why
	m.ChainProblem = &api.ChainProblem{Message: "the definition was changed\x1b[2J" + strings.Repeat("x", 1<<16), Cure: evil, Guarded: true}
	m.GuestPaused = "no room\x1b[2J"
	report(m)
	noneShown()
	m = moving()
	if p := m.ChainProblem; p == nil || !p.Guarded || !strings.HasPrefix(p.Message, "the definition was changed") || strings.Contains(p.Message+m.GuestPaused, "\x1b") || len(p.Message) > 1<<15 {
		t.Errorf("the chain problem is %.200v", p)
	}
	if m.Error == nil || m.Error.Message != why.Message {
		t.Errorf("the error is %v, want %v", m.Error, why)
	}

	needs := api.MigrationTransition{From: []api.MigrationState{m.State}, To: api.MigrationNeedsOperator, Host: "a", Epoch: 1, OpID: "o", Error: why}
	expect.Value(s.store.Migrations.Transition(t.Context(), store.Call{}, moveID, needs))(t)
	noneShown()
}
