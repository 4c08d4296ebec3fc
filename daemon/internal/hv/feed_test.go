// SPDX-License-Identifier: Apache-2.0

package hv_test

import (
	"context"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func TestSubscriptionStartsWithConnectedOnlyWhileUp(t *testing.T) {
	var feed hv.Feed
	early := feed.Subscribe(t.Context())
	if got := len(early); got != 0 {
		t.Fatalf("a subscription of a feed that is down holds %d events, want none", got)
	}
	feed.Publish(hv.Event{Kind: hv.EventConnected})
	late := feed.Subscribe(t.Context())
	for name, sub := range map[string]<-chan hv.Event{"early": early, "late": late} {
		if got := (<-sub).Kind; got != hv.EventConnected {
			t.Errorf("first event of the %s subscription = %s, want connected", name, got)
		}
	}
	feed.Publish(hv.Event{Kind: hv.EventDisconnected})
	if feed.Up() {
		t.Error("Up() = true after EventDisconnected")
	}
}

func TestSlowReaderIsToldToReadEverythingAgain(t *testing.T) {
	var feed hv.Feed
	feed.Publish(hv.Event{Kind: hv.EventConnected})
	sub := feed.Subscribe(t.Context())
	<-sub
	const published = 1000
	for range published {
		feed.Publish(hv.Event{Kind: hv.EventLifecycle})
	}
	feed.Publish(hv.Event{Kind: hv.EventLifecycle, Detail: "last"})
	if n := len(sub); n >= published {
		t.Fatalf("queue holds %d events, want it bounded", n)
	}
	if got := (<-sub).Kind; got != hv.EventConnected {
		t.Errorf("after an overflow the first event = %s, want connected", got)
	}
	var last hv.Event
	for range len(sub) {
		last = <-sub
	}
	if last.Detail != "last" {
		t.Errorf("newest event was lost: %+v", last)
	}
}

func TestSubscriptionEndsWithItsContext(t *testing.T) {
	var feed hv.Feed
	ctx, cancel := context.WithCancel(t.Context())
	sub := feed.Subscribe(ctx)
	cancel()
	if _, open := <-sub; open {
		t.Error("got an event, want the subscription closed")
	}
	feed.Publish(hv.Event{Kind: hv.EventConnected}) // must not send on a closed channel
}
