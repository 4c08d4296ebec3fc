// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

func TestARepeatedRequestIsAnsweredAndNotRepeated(t *testing.T) {
	l := newLedger(t, Options{})
	req := Request{OpID: "op-1", Owner: "a", What: "make", Body: "x"}
	for range 2 {
		if answer := must(audited(t.Context(), l, req))(t); answer != "made x" {
			t.Errorf("answer = %q", answer)
		}
	}
	other := req
	other.Body = "y"
	_, err := audited(t.Context(), l, other)
	wantCode(t, err, api.CodeIdempotencyMismatch, "op-1")
	other.Owner = "b"
	must(audited(t.Context(), l, other))(t)
	if got := things(t, l); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("things = %q", got)
	}
}

func TestARefusalIsNotKept(t *testing.T) {
	l := newLedger(t, Options{})
	if err := l.Submit(t.Context(), insertThing("x")); err != nil {
		t.Fatal(err)
	}
	req := Request{OpID: "op-1", What: "make", Body: "x"}
	if _, err := audited(t.Context(), l, req); err == nil {
		t.Fatal("a thing was made twice")
	}
	if err := l.Submit(t.Context(), execute("DELETE FROM things")); err != nil {
		t.Fatal(err)
	}
	must(audited(t.Context(), l, req))(t)
}

func TestOldAnswersExpire(t *testing.T) {
	now := time.Now()
	l := newLedger(t, Options{Now: func() time.Time { return now }})
	req := Request{OpID: "op-1", What: "make", Body: "x"}
	must(audited(t.Context(), l, req))(t)
	now = now.Add(KeepAnswers - time.Second)
	if err := l.ExpireAnswers(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(audited(t.Context(), l, req))(t)
	now = now.Add(time.Minute)
	if err := errors.Join(l.ExpireAnswers(t.Context()), l.Submit(t.Context(), execute("DELETE FROM things"))); err != nil {
		t.Fatal(err)
	}
	must(audited(t.Context(), l, req))(t)
	if got := things(t, l); !slices.Equal(got, []string{"x"}) {
		t.Errorf("things = %q", got)
	}
}
