// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// queueChange is Submit without waiting for the answer.
func queueChange(t *testing.T, l *Ledger, do func(context.Context, *Tx) error) submission {
	t.Helper()
	c := submission{ctx: t.Context(), do: do, done: make(chan error, 1)}
	l.writer.queue <- c
	return c
}

// blockWriter keeps the writer busy, so that changes wait, until release is called. first is the
// change that it submits for that.
func blockWriter(t *testing.T, l *Ledger) (first submission, release func()) {
	t.Helper()
	inside, leave := make(chan struct{}), make(chan struct{})
	first = queueChange(t, l, func(context.Context, *Tx) error { close(inside); <-leave; return nil })
	<-inside
	return first, func() { close(leave) }
}

func TestWaitingChangesShareACommitAndARefusedOneLeavesNoTrace(t *testing.T) {
	var batches []int
	l := newLedger(t, Options{OnCommit: func(n int, _ time.Duration) { batches = append(batches, n) }})

	first, release := blockWriter(t, l)
	const waiting = 20
	refused := errors.New("refused")
	var changes []submission
	for n := range waiting {
		changes = append(changes, queueChange(t, l, func(ctx context.Context, tx *Tx) error {
			if err := insertThing(fmt.Sprint("t", n))(ctx, tx); err != nil {
				return err
			}
			switch n {
			case 3:
				return refused
			case 4:
				panic("bug")
			}
			return nil
		}))
	}
	release()
	if err := <-first.done; err != nil {
		t.Error(err)
	}
	errs := make([]error, waiting)
	for n, c := range changes {
		errs[n] = <-c.done
	}

	if len(batches) != 2 || batches[1] != waiting {
		t.Errorf("batches = %v, want 1 and then all %d that waited", batches, waiting)
	}
	for n, err := range errs {
		if bad := n == 3 || n == 4; (err != nil) != bad {
			t.Errorf("change %d: error = %v", n, err)
		}
	}
	if !errors.Is(errs[3], refused) {
		t.Errorf("change 3: error = %v, want its own", errs[3])
	}
	if n := len(things(t, l)); n != waiting-2 {
		t.Errorf("things = %d, want %d", n, waiting-2)
	}
}

func TestChangeOfACallerThatLeftIsNotBegun(t *testing.T) {
	l := newLedger(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if err := l.Submit(ctx, insertThing("gone")); !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v", err)
		}
	}
	if err := l.Submit(t.Context(), insertThing("here")); err != nil {
		t.Fatal(err)
	}
	if got := things(t, l); !slices.Equal(got, []string{"here"}) {
		t.Errorf("things = %q, want here", got)
	}
}

func TestAChangeThatMeetsAFullDatabaseSinksItsTransactionAndNothingElse(t *testing.T) {
	l := newLedger(t, Options{})
	var pages int
	if err := l.db.Write.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	limit := func(pages int) {
		t.Helper()
		if _, err := l.db.Write.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(pages)
	big := func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO idempotency (key, request, response, at_us) VALUES ('big', x'', json_quote(hex(zeroblob(100000))), 0)")
		return err
	}
	first, release := blockWriter(t, l)
	batch := []submission{queueChange(t, l, insertThing("before")), queueChange(t, l, big), queueChange(t, l, insertThing("after"))}
	release()
	if err := <-first.done; err != nil {
		t.Error(err)
	}
	for _, c := range batch {
		wantCode(t, <-c.done, api.CodeRegistryUnavailable, "full")
	}
	answers := must(ReadAll(t.Context(), l.db.Read, ScanString, "SELECT key FROM idempotency"))(t)
	if left := append(things(t, l), answers...); len(left) > 0 {
		t.Errorf("left of what did not find room: %q", left)
	}
	limit(1 << 30)
	for _, do := range []func(context.Context, *Tx) error{insertThing("before"), big, insertThing("after")} {
		if err := l.Submit(t.Context(), do); err != nil {
			t.Errorf("with space again: %v", err)
		}
	}
	if got := things(t, l); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("things = %q, want before and after", got)
	}
}

func TestWhatIsDoneAfterTheCommitIsNotDoneForARefusedChange(t *testing.T) {
	l := newLedger(t, Options{})
	var done []string
	first, release := blockWriter(t, l)
	refused := errors.New("refused")
	var batch []submission
	for _, name := range []string{"a", "b", "c"} {
		batch = append(batch, queueChange(t, l, func(_ context.Context, tx *Tx) error {
			tx.OnCommit(func() { done = append(done, name) })
			if name == "b" {
				return refused
			}
			return nil
		}))
	}
	release()
	for _, c := range append(batch, first) {
		if err := <-c.done; err != nil && !errors.Is(err, refused) {
			t.Error(err)
		}
	}
	if fmt.Sprint(done) != "[a c]" {
		t.Errorf("done = %v, want a and c in their order", done)
	}
}

func TestQueriesArePreparedOnce(t *testing.T) {
	l := newLedger(t, Options{})
	for _, name := range []string{"a", "b", "c"} {
		if err := l.Submit(t.Context(), insertThing(name)); err != nil {
			t.Fatal(err)
		}
	}
	err := l.writer.pause(t.Context(), func() error {
		if len(l.writer.statements.prepared) == 0 || len(l.writer.statements.unknown) != 0 {
			t.Errorf("prepared = %d, unknown = %d", len(l.writer.statements.prepared), len(l.writer.statements.unknown))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// recordingCache records its calls.
type recordingCache []string

func (c *recordingCache) BeforeExec(query string) { *c = append(*c, query) }
func (c *recordingCache) Undo()                   { *c = append(*c, "undo") }
func (c *recordingCache) Reset()                  { *c = append(*c, "reset") }

// Rows that a change has cached must not outlive it or its transaction.
func TestACacheIsToldWhatBecomesOfWhatWasRead(t *testing.T) {
	refused := errors.New("refused")
	refuse := func(context.Context, *Tx) error { return refused }
	const insert = "INSERT INTO things (name) VALUES (?)"
	for name, tc := range map[string]struct {
		changes []func(context.Context, *Tx) error
		want    recordingCache
	}{
		"kept":                    {[]func(context.Context, *Tx) error{insertThing("a")}, recordingCache{insert}},
		"refused before it wrote": {[]func(context.Context, *Tx) error{refuse}, recordingCache{"undo"}},
		"refused after another had written": {
			[]func(context.Context, *Tx) error{insertThing("a"), refuse}, recordingCache{insert, "undo"},
		},
		// The first try has no savepoints, as most batches need none.
		"refused after it wrote": {
			[]func(context.Context, *Tx) error{insertThing("a"), insertThing("a"), insertThing("b")},
			recordingCache{insert, insert, "undo", insert},
		},
		"refused with what it wrote": {
			[]func(context.Context, *Tx) error{insertThing("a"), func(ctx context.Context, tx *Tx) error {
				return errors.Join(insertThing("b")(ctx, tx), refused)
			}},
			recordingCache{insert, insert, "undo", "reset", insert, insert, "undo"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls recordingCache
			l := newLedger(t, Options{Cache: &calls})
			first, release := blockWriter(t, l)
			batch := []submission{first}
			for _, do := range tc.changes {
				batch = append(batch, queueChange(t, l, do))
			}
			release()
			for _, c := range batch {
				if err := <-c.done; api.CodeOf(err) == api.CodeRegistryUnavailable {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(tc.want, calls); diff != "" {
				t.Errorf("the cache was told (-want +got):\n%s", diff)
			}
		})
	}
}

// A probe that did not wait for the writer would succeed while the writer hangs.
func TestAProbeWaitsForTheWriter(t *testing.T) {
	l := newLedger(t, Options{})
	inside, finish := make(chan struct{}), make(chan struct{})
	changed, probed := make(chan error, 1), make(chan error, 1)
	go func() {
		changed <- l.Submit(t.Context(), func(context.Context, *Tx) error {
			close(inside)
			<-finish
			return nil
		})
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Probe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a probe while the writer is at work: %v", err)
	}
	go func() { probed <- l.Probe(t.Context()) }()
	close(finish)
	if err := errors.Join(<-changed, <-probed); err != nil {
		t.Error(err)
	}
}
