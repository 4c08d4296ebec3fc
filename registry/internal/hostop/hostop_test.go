// SPDX-License-Identifier: Apache-2.0

package hostop_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
)

// host answers every call with one status, except queries of ops, and has the ops that it has
// begun.
type host struct {
	status int
	ops    map[string][]string // the states shown for each, one after the other
}

func (h host) Do(_ context.Context, req relay.Request) (int, []byte, error) {
	a := api.TaskAnswer{Status: h.status, Body: []byte(`{}`)}
	if id, asks := relaytest.AsksForOp(api.Task{Path: req.Path}); asks {
		if a = relaytest.Refuse(api.CodeNotFound); len(h.ops[id]) > 0 {
			a = relaytest.OpIs(api.Op{ID: id, State: h.ops[id][0]})
			h.ops[id] = h.ops[id][1:]
		}
	}
	return a.Status, a.Body, nil
}

// A host with an unexpected answer may have begun the request.
func TestAnAnswerThatTellsNothingIsLookedUpByTheOp(t *testing.T) {
	for name, tc := range map[string]struct {
		status          int
		states          []string
		done, untouched bool
	}{
		"begun and done":          {http.StatusBadGateway, []string{"running", "running", api.OpDone}, true, false},
		"begun and undone":        {http.StatusBadGateway, []string{"running", api.OpUndone}, false, false},
		"never begun":             {http.StatusBadGateway, nil, false, true},
		"refused, and never seen": {http.StatusConflict, []string{api.OpDone}, false, true},
		"taken":                   {http.StatusAccepted, []string{"running", api.OpDone}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &hostop.Client{Relay: host{tc.status, map[string][]string{"k": tc.states}}, Every: 1}
				out, err := c.AskSurely(t.Context(), hostop.Request{Key: "k"})
				if err != nil || (out.Failed == nil) != tc.done || out.Untouched != tc.untouched {
					t.Errorf("outcome = %+v, %v", out, err)
				}
			})
		})
	}
}

func TestAnOpThatNeedsAnOperatorAndDoesNotSayWhyNamesTheCommandThatDoes(t *testing.T) {
	c := &hostop.Client{Relay: host{http.StatusAccepted, map[string][]string{"k": {api.OpNeedsOperator}}}, Every: 1}
	out, err := c.Ask(t.Context(), hostop.Request{Key: "k", HostName: "alpha"})
	expect.OK(t, err)
	expect.Code(t, out.Failed, api.CodeNeedsOperator, "operation k on host alpha needs an operator")
	expect.Code(t, out.Failed, api.CodeNeedsOperator, "on that host `volferryctl status`")
}

func TestKeysFollowFromTheirMigration(t *testing.T) {
	for want, got := range map[string]string{
		"M.copy":           hostop.Key("M", "copy", 0),
		"M.save.I.2":       hostop.Key("M", "save", 1, "I"),
		"M.round.H.1.2":    hostop.Key("M", "round", 0, "H", "1", "2"),
		"M.round.H.1.2.10": hostop.Key("M", "round", 9, "H", "1", "2"),
	} {
		if got != want {
			t.Errorf("key = %s, want %s", got, want)
		}
	}
}

// slow is a host that answers a query of an op at the end of the op.
type slow struct{ takes time.Duration }

func (s slow) Do(_ context.Context, req relay.Request) (int, []byte, error) {
	state := "running"
	if _, asks := relaytest.AsksForOp(api.Task{Path: req.Path}); asks {
		<-time.After(s.takes)
		state = api.OpDone
	}
	a := relaytest.OpIs(api.Op{ID: req.Key, State: state})
	return a.Status, a.Body, nil
}

func TestTheEndOfAnOpIsHeardOfAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := &hostop.Client{Relay: slow{7100 * time.Millisecond}, Every: time.Minute}
		if out, err := c.Ask(t.Context(), hostop.Request{Key: "k"}); err != nil || out.Failed != nil || time.Since(began) != 7100*time.Millisecond {
			t.Errorf("outcome = %+v, %v after %s", out, err, time.Since(began))
		}
	})
}
