// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// as returns a call of a host in an epoch.
func as(host string, epoch int64) Call {
	return Call{Who: "test", Host: &HostToken{ID: host, Epoch: epoch}}
}

var cut = api.HostFence{Evidence: "the power is off", EvenIfUp: true}

// post makes a change that every caller may make.
func post(ctx context.Context, s *Store, call Call) error {
	return second(s.Trail.Post(ctx, call, api.EventPost{What: "guard.set", Object: "instance/" + web}))
}

func TestOnlyAHostInItsEpochChangesAnything(t *testing.T) {
	for name, tc := range map[string]struct {
		call  Call
		fence bool
		stale int64 // the epoch in the refusal, 0 for success
	}{
		"its epoch":             {as(hostA, 1), false, 0},
		"no token at all":       {nobody, true, 0},
		"an older epoch":        {as(hostA, 1), true, 2},
		"its epoch, but fenced": {as(hostA, 2), true, 2},
		"an epoch to come":      {as(hostA, 2), false, 1},
		"another host's fence":  {as(hostB, 1), true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if tc.fence {
				must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
			}
			if tc.stale == 0 {
				if err := post(t.Context(), s, tc.call); err != nil {
					t.Error(err)
				}
				return
			}
			wantStale(t, unchanged(t, s, func() error { return post(t.Context(), s, tc.call) }), tc.stale)
		})
	}
	s := newSite(t)
	wantCode(t, post(t.Context(), s, as(id(hostKind, 9), 1)), api.CodeStaleEpoch, "does not know")
}

func TestAChangeThatWasAnsweredIsStaleAfterTheFence(t *testing.T) {
	s := newSite(t)
	call := as(hostA, 1)
	call.Key = "key-1"
	if err := post(t.Context(), s, call); err != nil {
		t.Fatal(err)
	}
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	wantStale(t, post(t.Context(), s, call), 2)
}

func TestTheTokenIsInTheTrail(t *testing.T) {
	s := newSite(t)
	if err := post(t.Context(), s, as(hostA, 1)); err != nil {
		t.Fatal(err)
	}
	if e := lastEvent(t, s); e.Token == nil || e.Token.Epoch != 1 || e.Host != "a" || e.Result != "ok" {
		t.Errorf("event = %+v, want host a, epoch 1 and ok", e)
	}
	must(s.Migrations.Register(t.Context(), nobody, rootMigration()))(t)
	if e := lastEvent(t, s); e.Token == nil || e.Token.Epoch != 1 {
		t.Errorf("event = %+v, want the epoch that the request had in its body", e)
	}
	must(s.Types.Create(t.Context(), nobody, api.VolumeTypeCreate{Name: "gold"}))(t)
	if e := lastEvent(t, s); e.Token != nil {
		t.Errorf("event = %+v, want no token: an operator has none", e)
	}
}

func TestFenceAndRejoin(t *testing.T) {
	s := newSite(t)
	h := must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	if h.Epoch != 2 || h.Status != api.HostFenced || h.ID != hostA {
		t.Errorf("fenced host = %+v", h)
	}
	if e := lastEvent(t, s); e.What != "host.fence" || e.Details["evidence"] != cut.Evidence || e.Token.Epoch != 2 || e.Host != "a" {
		t.Errorf("event = %+v", e)
	}
	if c := must(s.Counts(t.Context()))(t); c.Hosts[api.HostFenced] != 1 {
		t.Errorf("hosts = %v", c.Hosts)
	}
	wantStale(t, second(s.Hosts.Rejoin(t.Context(), as(hostA, 1), "a", api.HostRejoin{Epoch: 1})), 2)
	wantCode(t, second(s.Hosts.Rejoin(t.Context(), as(hostB, 1), "a", api.HostRejoin{Epoch: 2})), api.CodeNotYourHost, "host a")
	if h := must(s.Hosts.Rejoin(t.Context(), as(hostA, 2), "a", api.HostRejoin{Epoch: 2}))(t); h.Status != api.HostUp || h.Epoch != 2 {
		t.Errorf("rejoined host = %+v", h)
	}
	if e := lastEvent(t, s); e.What != "host.rejoin" || e.From != api.HostFenced {
		t.Errorf("event = %+v", e)
	}
	if err := post(t.Context(), s, as(hostA, 2)); err != nil {
		t.Error(err)
	}
	if err := unchanged(t, s, func() error {
		return second(s.Hosts.Rejoin(t.Context(), as(hostA, 2), hostA, api.HostRejoin{Epoch: 2}))
	}); err != nil {
		t.Errorf("a second rejoin: %v", err)
	}
}

func TestASecondFenceEndsARejoinThatIsOnItsWay(t *testing.T) {
	s := newSite(t)
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	must(s.Hosts.Fence(t.Context(), nobody, "a", api.HostFence{Evidence: "it came back, so the port is off too", EvenIfUp: true}))(t)
	wantStale(t, second(s.Hosts.Rejoin(t.Context(), as(hostA, 2), "a", api.HostRejoin{Epoch: 2})), 3)
}

func TestAFenceThatIsRepeatedBumpsTheEpochOnce(t *testing.T) {
	s := newSite(t)
	call := Call{Who: "test", Key: "key-1"}
	for range 2 {
		if h := must(s.Hosts.Fence(t.Context(), call, "a", cut))(t); h.Epoch != 2 {
			t.Errorf("epoch = %d", h.Epoch)
		}
	}
}

func TestARefusedFenceIsAudited(t *testing.T) {
	for name, tc := range map[string]struct {
		call     Call
		ref      string
		evidence string
		code     api.Code
	}{
		"no evidence":           {nobody, "a", "", api.CodeInvalidArgument},
		"blank evidence":        {nobody, "a", " \u2003 ", api.CodeInvalidArgument},
		"control characters":    {nobody, "a", "off\x1b[2J", api.CodeInvalidArgument},
		"1,001 characters":      {nobody, "a", strings.Repeat("é", 1001), api.CodeInvalidArgument},
		"unknown host":          {nobody, "nowhere", "off", api.CodeNotFound},
		"no host":               {nobody, "", "off", api.CodeInvalidArgument},
		"a host fences another": {as(hostB, 1), "a", "off", api.CodePermissionDenied},
		"a stale host":          {as(hostB, 7), "a", "off", api.CodeStaleEpoch},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			tc.call.Key = "key-1"
			_, err := s.Hosts.Fence(t.Context(), tc.call, tc.ref, api.HostFence{Evidence: tc.evidence, EvenIfUp: true})
			wantCode(t, err, tc.code, "")
			if e := lastEvent(t, s); e.What != "host.fence" || e.Result != string(tc.code) || e.Object != "host/"+tc.ref || e.Who != "test" || e.OpID != "key-1" || e.Details["error"] == "" {
				t.Errorf("event = %+v", e)
			}
			if h := must(s.Hosts.Get(t.Context(), "a"))(t); h.Epoch != 1 || h.Status != api.HostUp {
				t.Errorf("host = %+v", h)
			}
		})
	}
	s := newSite(t)
	must(s.Hosts.Fence(t.Context(), nobody, "a", api.HostFence{Evidence: strings.Repeat("é", 1000), EvenIfUp: true}))(t)
}

func reportOf(host, name string, epoch int64) api.HostReport {
	return api.HostReport{ID: host, Name: name, BootID: "first", Epoch: epoch}
}

func TestReportsAndEpochs(t *testing.T) {
	for name, tc := range map[string]struct {
		fences int
		rejoin bool
		epoch  int64 // in the report
		stale  int64 // in the refusal, 0 if accepted
	}{
		"its epoch":                    {0, false, 1, 0},
		"a lost memory, never fenced":  {0, false, 0, 0},
		"an epoch to come":             {0, false, 2, 1},
		"before it knows of the fence": {1, false, 1, 2},
		"fenced, and it knows":         {1, false, 2, 2},
		"after the rejoin":             {1, true, 2, 0},
		"an old epoch after it":        {1, true, 1, 2},
		"a lost memory, once fenced":   {1, true, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			for range tc.fences {
				must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
			}
			if tc.rejoin {
				must(s.Hosts.Rejoin(t.Context(), nobody, "a", api.HostRejoin{Epoch: 2}))(t)
			}
			later := time.Now().Add(time.Hour)
			s.now = func() time.Time { return later }
			in := reportOf(hostA, "a", tc.epoch)
			in.BootID = "second" // a change to store
			if tc.stale == 0 {
				if h := must(s.Reports.Receive(t.Context(), nobody, in))(t); h.Epoch != int64(1+tc.fences) || h.Status != api.HostUp {
					t.Errorf("host = %+v", h)
				}
				return
			}
			wantStale(t, unchanged(t, s, func() error { return second(s.Reports.Receive(t.Context(), nobody, in)) }), tc.stale)
			if h := must(s.Hosts.Get(t.Context(), "a"))(t); h.LastSeenAt.Before(later.Add(-time.Second)) {
				t.Errorf("last seen at %v: the sighting was not noted", h.LastSeenAt)
			}
		})
	}
}

func TestEpochsSurviveARestart(t *testing.T) {
	s, reopen := reopenable(t)
	must(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 0)))(t)
	must(s.Hosts.Fence(t.Context(), nobody, "a", cut))(t)
	s = reopen()
	wantStale(t, second(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1))), 2)
	wantStale(t, post(t.Context(), s, as(hostA, 1)), 2)
	if h := must(s.Hosts.Get(t.Context(), "a"))(t); h.Status != api.HostFenced {
		t.Errorf("host = %+v", h)
	}
}

func TestAHostReportsForItselfAlone(t *testing.T) {
	s := newSite(t)
	err := unchanged(t, s, func() error { return second(s.Reports.Receive(t.Context(), as(hostB, 1), reportOf(hostA, "a", 1))) })
	wantCode(t, err, api.CodeNotYourHost, "host a")
	must(s.Reports.Receive(t.Context(), as(hostA, 0), reportOf(hostA, "a", 0)))(t)
}

func TestAHostMayOnlyNameItselfInARequest(t *testing.T) {
	s := newSite(t)
	err := unchanged(t, s, func() error { return second(s.Migrations.Register(t.Context(), as(hostB, 1), rootMigration())) })
	wantCode(t, err, api.CodeNotYourHost, "you are host b")
}

func TestARefusedFenceLeavesNoTraceInTheCache(t *testing.T) {
	// In a bubble, to wait until changes are queued.
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		submit := func(do func(context.Context, *Tx) error) <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- s.ledger.Submit(t.Context(), func(ctx context.Context, w *ledger.Tx) error {
					return do(ctx, s.newTx(s.ledger.NewChange(w, ledger.Request{}), nobody))
				})
			}()
			synctest.Wait()
			return done
		}
		release := make(chan struct{})
		first := submit(func(context.Context, *Tx) error { <-release; return nil })
		// In one transaction: a fence that is undone, and a change in the old epoch.
		undone := submit(func(ctx context.Context, tx *Tx) error {
			if err := tx.setEpoch(ctx, hostA, 2, true); err != nil {
				return err
			}
			if h, err := tx.hostRow(ctx, hostA); err != nil || h.Epoch != 2 {
				t.Errorf("inside the change: host = %+v (%v)", h, err)
			}
			if err := tx.Audit(ctx, api.Event{What: "undone"}); err != nil {
				return err
			}
			return context.Canceled
		})
		after := submit(func(ctx context.Context, tx *Tx) error {
			if _, err := tx.CheckHost(ctx, "a", 1); err != nil {
				return err
			}
			return tx.Audit(ctx, api.Event{What: "after"})
		})
		close(release)
		if err := errors.Join(<-first, <-after); err != nil {
			t.Error(err)
		}
		if err := <-undone; err == nil {
			t.Error("the change that was to be undone was made")
		}
		if e := lastEvent(t, s); e.What != "after" {
			t.Errorf("last event = %+v", e)
		}
		must(s.Trail.Verify(t.Context()))(t)
	})
}

// The name may be wrong: a host that answers has power and a network.
func TestAHostThatReportsRightNowIsFencedOnlyIfThatIsMeant(t *testing.T) {
	s := newSite(t)
	word := api.HostFence{Evidence: "the power is off"}
	fence := func() error { return second(s.Hosts.Fence(t.Context(), nobody, "a", word)) }
	refused := fence()
	wantCode(t, refused, api.CodeConflict, "it was heard of 0s ago")
	if e := lastEvent(t, s); e.What != "host.fence" || e.Result != string(api.CodeConflict) {
		t.Errorf("event = %+v", e)
	}
	s.now = func() time.Time { return time.Now().Add(s.reportEvery() + upMargin + time.Second) }
	if err := fence(); err != nil {
		t.Errorf("a host that has been silent: %v", err)
	}
	wantStale(t, second(s.Reports.Receive(t.Context(), nobody, reportOf(hostA, "a", 1))), 2)
	if err := fence(); err != nil {
		t.Errorf("a host that is fenced and wants to come back: %v", err)
	}
	s.now = time.Now
	word.EvenIfUp = true
	must(s.Hosts.Fence(t.Context(), nobody, "b", word))(t)
}

func TestAHostThatHasNotReportedInThisRunIsFenced(t *testing.T) {
	s, reopen := reopenable(t)
	givenMark(t, s)
	s = reopen()
	must(s.Hosts.Fence(t.Context(), nobody, "a", api.HostFence{Evidence: "the power is off"}))(t)
}
