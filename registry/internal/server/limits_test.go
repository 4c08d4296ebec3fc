// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
)

const followed = "/v1/events?follow=1&since=100000"

func reader(name string) speaker {
	return speaker{cert: &mtls.Identity{Kind: mtls.KindOperator, Role: httpjson.Read, Name: name}}
}

// follow follows the trail as an operator, until end is called.
func (s *site) follow(t *testing.T, name string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		s.handler.ServeHTTP(w, reader(name).request(ctx, "GET", followed, ""))
	}()
	return func() { cancel(); <-done }
}

func TestOneCallerFollowsAFewThingsAtATimeAndAnotherIsNotKeptFromIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		var ends []func()
		for range 8 {
			ends = append(ends, s.follow(t, "ann"))
		}
		pass(time.Second)
		ask := func(name string) *httptest.ResponseRecorder {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, reader(name).request(ctx, "GET", followed, ""))
			return w
		}
		wantError(t, ask("ann"), api.CodeRegistryUnavailable)
		if w := ask("bob"); w.Code != 200 {
			t.Errorf("another caller: %d %s", w.Code, w.Body)
		}
		ends[0]()
		if w := ask("ann"); w.Code != 200 {
			t.Errorf("after one has ended: %d %s", w.Code, w.Body)
		}
		for _, end := range ends[1:] {
			end()
		}
	})
}

func TestAHostIsNotToldTheIdsOfOthers(t *testing.T) {
	s := newSite(t)
	s.fill(t)
	daemon := speaker{cert: certificate(hostID, "a"), epoch: "1"}
	for _, path := range []string{"/v1/hosts/1000", "/v1/volumes/3000", "/v1/instances/2000", "/v1/attachments/4000", "/v1/migrations/5000"} {
		w := s.speak(t, daemon, "GET", path, "")
		for _, other := range []string{otherID, volumeID, "candidates"} {
			if w.Code < 400 || strings.Contains(w.Body.String(), other) {
				if path == "/v1/instances/2000" || path == "/v1/migrations/5000" { // one exists, and is its own
					continue
				}
				t.Errorf("%s is answered %d %s", path, w.Code, w.Body)
			}
		}
		if w := s.do(t, "GET", "/v1/volumes/3000", ""); !strings.Contains(w.Body.String(), volumeID) {
			t.Errorf("an operator is told: %s", w.Body)
		}
	}
}

func TestTheAttachmentOfAFencedHostIsTakenByTheRoleFenceAlone(t *testing.T) {
	s := newSite(t)
	s.fill(t)
	s.ok(t, "POST", "/v1/hosts/a/fence", `{"evidence":"off","even_if_up":true}`)
	as := func(role string) speaker {
		id, _ := mtls.ParseRole(role)
		return speaker{cert: &mtls.Identity{Kind: mtls.KindOperator, Role: id, Name: "ann"}}
	}
	wantError(t, s.speak(t, as("operate"), "DELETE", "/v1/attachments/"+attachedID+"?force=1", ""), api.CodePermissionDenied)
	if e := s.ok(t, "GET", "/v1/events?since=0", ""); !strings.Contains(string(e), "attachment.delete") {
		t.Errorf("the refusal is not in the trail: %s", e)
	}
	if w := s.speak(t, as("fence"), "DELETE", "/v1/attachments/"+attachedID+"?force=1", ""); w.Code != 200 {
		t.Errorf("with the role fence: %d %s", w.Code, w.Body)
	}
}
