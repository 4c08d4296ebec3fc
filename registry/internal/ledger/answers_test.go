// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// The answers of changes that share a commit are looked up together, before the first of them is
// made.
func TestARepeatedRequestIsAnsweredAndNotRepeatedWhateverSharesItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches []int
		l := newLedger(t, Options{OnCommit: func(n int, _ time.Duration) { batches = append(batches, n) }})
		kept := Request{OpID: "kept", What: "make", Body: "kept"}
		must(audited(t.Context(), l, kept))(t)
		if err := l.Submit(t.Context(), insertThing("taken")); err != nil {
			t.Fatal(err)
		}
		batches = nil

		first, release := blockWriter(t, l)
		news, refused := Request{OpID: "<&> new", What: "make", Body: "new"}, Request{OpID: "refused", What: "make", Body: "taken"}
		other, free := news, refused
		other.Body, free.Body = "other", "free"
		batch := []struct {
			req    Request
			answer string
			code   api.Code
		}{
			{kept, "made kept", ""},
			{news, "made new", ""},
			{news, "made new", ""},
			{other, "", api.CodeIdempotencyMismatch},
			{refused, "", api.CodeInternal},
			{free, "made free", ""},
		}
		answers, errs := make([]string, len(batch)), make([]error, len(batch))
		var wg sync.WaitGroup
		for i, c := range batch {
			wg.Go(func() { answers[i], errs[i] = audited(t.Context(), l, c.req) })
			synctest.Wait() // it is in the queue
		}
		release()
		wg.Wait()
		if err := <-first.done; err != nil {
			t.Error(err)
		}
		for i, c := range batch {
			if answers[i] != c.answer || api.CodeOf(errs[i]) != c.code {
				t.Errorf("request %d: answer = %q, %v, want %q %s", i, answers[i], errs[i], c.answer, c.code)
			}
		}
		if got := things(t, l); !slices.Equal(got, []string{"kept", "taken", "new", "free"}) {
			t.Errorf("things = %q", got)
		}
		if !slices.Equal(batches, []int{1, len(batch)}) {
			t.Errorf("commits of %v changes, want all %d to share one", batches, len(batch))
		}
	})
}

func TestAnswersAreLookedUpByTheIndexOfTheirKeys(t *testing.T) {
	l := newLedger(t, Options{})
	plan := must(QueryAll(t.Context(), l.db.Read, ScanInto(func(p *string) []any { var ignored any; return []any{&ignored, &ignored, &ignored, p} }), "EXPLAIN QUERY PLAN "+keysQuery, "[]"))(t)
	if text := strings.Join(plan, "\n"); !strings.Contains(text, "SEARCH idempotency USING COVERING INDEX") || strings.Contains(text, "SCAN idempotency") {
		t.Errorf("the plan is\n%s", text)
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

// Answers are kept for months. An operator may have a larger answer, such as for a drain of many
// volumes.
func TestAChangeOfAHostWhoseAnswerIsTooLargeToBeKeptIsNotMade(t *testing.T) {
	l := newLedger(t, Options{})
	body := strings.Repeat("x", maxHostAnswer)
	req := Request{OpID: "op-1", Owner: "a", What: "make", Body: body}
	_, err := audited(t.Context(), l, req)
	wantCode(t, err, api.CodeInvalidArgument, "the change was not made")
	if got := things(t, l); len(got) > 0 {
		t.Errorf("%d things were made", len(got))
	}
	req.Body = "small"
	must(audited(t.Context(), l, req))(t)
	req.OpID, req.Owner, req.Body = "op-2", "", body
	must(audited(t.Context(), l, req))(t)
}
