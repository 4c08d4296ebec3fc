// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func TestEachCallerHasItsOwnBoundAndLearnsWhatWasRefused(t *testing.T) {
	l, now := New(rate.Every(time.Second), 2), time.Unix(0, 0)
	want := func(caller string, ok bool, refused int) {
		t.Helper()
		if gotOK, got := l.Allow(caller, now); gotOK != ok || got != refused {
			t.Errorf("%s: %t, %d refused; want %t, %d", caller, gotOK, got, ok, refused)
		}
	}
	want("a", true, 0)
	want("a", true, 0)
	want("a", false, 0)
	want("a", false, 0)
	want("b", true, 0)
	now = now.Add(time.Second)
	want("a", true, 2)
	want("a", false, 0)
}

func TestIdleCallersAreDroppedAndBusyOnesAreNot(t *testing.T) {
	l, now := New(rate.Every(time.Minute), 1), time.Unix(0, 0)
	l.Allow("busy", now.Add(time.Minute))
	for n := range manyCallers {
		l.Allow(fmt.Sprint(n), now)
	}
	now = now.Add(time.Minute)
	l.Allow("one more", now)
	if len(l.callers) != 2 {
		t.Errorf("%d callers are left, want the one that is busy and the new one", len(l.callers))
	}
	if ok, _ := l.Allow("busy", now); ok {
		t.Error("a caller was dropped with what it has used up")
	}
}

func TestCallersThatOweNoBytesAreDroppedAndOthersAreNot(t *testing.T) {
	b, now := NewBytes(1, 60), time.Unix(0, 0)
	b.Spend("owes", 180, now)
	for n := range manyCallers {
		b.Spend(fmt.Sprint(n), 1, now)
	}
	now = now.Add(time.Minute)
	if !b.Allow("one more", now) || len(b.callers) != 2 {
		t.Errorf("%d callers are left, want the one that owes and the new one", len(b.callers))
	}
	if b.Allow("owes", now) {
		t.Error("a caller was dropped with what it owes")
	}
}
