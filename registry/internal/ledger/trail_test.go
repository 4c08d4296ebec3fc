// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// newTrail returns a ledger with four events.
func newTrail(t *testing.T) *Ledger {
	t.Helper()
	l := newLedger(t, Options{})
	for _, name := range []string{"a", "b", "c", "d"} {
		must(audited(t.Context(), l, Request{Who: "test", What: "make", Body: name}))(t)
	}
	return l
}

func TestAuditTrailShowsThatItWasChanged(t *testing.T) {
	for name, tamper := range map[string]string{
		"changed content": `UPDATE events SET content = json_set(content, '$.who', 'somebody else') WHERE seq = 2`,
		"removed event":   `DELETE FROM events WHERE seq = 2`,
		"swapped events":  `UPDATE events SET content = (SELECT content FROM events WHERE seq = 3) WHERE seq = 2`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newTrail(t)
			if n := must(l.VerifyAudit(t.Context()))(t); n != 4 {
				t.Errorf("events = %d, want 4", n)
			}
			if _, err := l.db.Write.ExecContext(t.Context(), tamper); err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("tampering through the program: error = %v", err)
			}
			if _, err := l.db.Write.ExecContext(t.Context(), "DROP TRIGGER events_are_not_changed; DROP TRIGGER events_are_not_removed; "+tamper); err != nil {
				t.Fatal(err)
			}
			if _, err := l.VerifyAudit(t.Context()); err == nil || !strings.Contains(err.Error(), "event 2") {
				t.Errorf("error = %v, want one that names event 2", err)
			}
			if found, ok := l.LastAudit(); !ok || found.Err == nil || found.Events != 2 {
				t.Errorf("last check = %+v, %t", found, ok)
			}
		})
	}
}

func TestRehashedEventBreaksTheChainAfterIt(t *testing.T) {
	l := newTrail(t)
	var first, content []byte
	if err := l.db.Read.QueryRowContext(t.Context(), "SELECT a.hash, b.content FROM events a JOIN events b ON b.seq = 2 WHERE a.seq = 1").Scan(&first, &content); err != nil {
		t.Fatal(err)
	}
	forged := []byte(strings.Replace(string(content), `"who":"test"`, `"who":"fake"`, 1))
	if _, err := l.db.Write.ExecContext(t.Context(), "DROP TRIGGER events_are_not_changed"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.Write.ExecContext(t.Context(), "UPDATE events SET content = ?, hash = ? WHERE seq = 2", string(forged), chain(first, forged)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.VerifyAudit(t.Context()); err == nil || !strings.Contains(err.Error(), "event 3") {
		t.Errorf("error = %v, want one that names event 3", err)
	}
}

func TestFollowerIsWokenByACommit(t *testing.T) {
	l := newTrail(t)
	next := l.NextCommit()
	select {
	case <-next:
		t.Fatal("woken before anything happened")
	default:
	}
	must(audited(t.Context(), l, Request{What: "make", Body: "x"}))(t)
	<-next
}

// A crash at the first point leaves nothing of the change, a crash at the second all of it.
func TestFaultPointsAreOnBothSidesOfTheCommit(t *testing.T) {
	stored := map[string]int{}
	var l *Ledger
	l = newLedger(t, Options{FaultPoint: func(name string) {
		stored[name] = len(must(l.Events(t.Context(), 0))(t))
	}})
	must(audited(t.Context(), l, Request{What: "make", Body: "a"}))(t)
	if _, err := audited(t.Context(), l, Request{What: "make", Body: "a"}); err == nil {
		t.Error("a thing was made twice")
	}
	want := map[string]int{"make.before_commit": 0, "make.after_commit": 1}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("events that are stored when the points are passed (-want +got):\n%s", diff)
	}
}

// A change that is refused after it has written leaves the trail unchanged.
func TestARefusedChangeLeavesNoEvent(t *testing.T) {
	l := newTrail(t)
	before := must(ReadEnd(t.Context(), l.db.Read))(t)
	refused := errors.New("refused")
	_, err := Mutate(t.Context(), l, Request{}, admitAll, func(ctx context.Context, tx *Change) (string, error) {
		return "", errors.Join(tx.Audit(ctx, api.Event{What: "undone"}), refused)
	})
	if !errors.Is(err, refused) {
		t.Errorf("error = %v", err)
	}
	if diff := cmp.Diff(before, must(ReadEnd(t.Context(), l.db.Read))(t)); diff != "" {
		t.Errorf("end of the trail (-before +after):\n%s", diff)
	}
	must(audited(t.Context(), l, Request{What: "make", Body: "after"}))(t)
	if n := must(l.VerifyAudit(t.Context()))(t); n != before.Seq+1 {
		t.Errorf("events = %d", n)
	}
}

// fillTrail adds about n MiB of events.
func fillTrail(t *testing.T, l *Ledger, n int) {
	t.Helper()
	for range 6 * n { // each within the limit of details
		must(Mutate(t.Context(), l, Request{What: "fill"}, admitAll, func(ctx context.Context, tx *Change) (struct{}, error) {
			return struct{}{}, tx.Audit(ctx, api.Event{What: "fill", Details: map[string]any{"text": strings.Repeat("x", 200<<10)}})
		}))(t)
	}
}

func TestTheLastEventsAreInTheirOrder(t *testing.T) {
	l := newLedger(t, Options{})
	for range 5 {
		must(Mutate(t.Context(), l, Request{What: "note"}, admitAll, func(ctx context.Context, tx *Change) (struct{}, error) {
			return struct{}{}, tx.Audit(ctx, api.Event{What: "note"})
		}))(t)
	}
	for _, tc := range []struct {
		since int64
		n     int
		want  []int64
	}{{0, 3, []int64{3, 4, 5}}, {4, 3, []int64{5}}, {5, 3, nil}, {0, 1000, []int64{1, 2, 3, 4, 5}}} {
		var got []int64
		for _, e := range must(l.LastEvents(t.Context(), tc.since, tc.n))(t) {
			got = append(got, e.Seq)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("the last %d after %d are %v, want %v", tc.n, tc.since, got, tc.want)
		}
	}
}

func TestAReadOfTheTrailIsBoundedByBytesAndReachesItsEnd(t *testing.T) {
	l := newLedger(t, Options{})
	fillTrail(t, l, 5)
	since, pages := int64(0), 0
	for ; ; pages++ {
		page := must(l.Events(t.Context(), since))(t)
		if len(page) == 0 {
			break
		}
		size := 0
		for _, e := range page {
			size += len(fmt.Sprint(e.Details["text"]))
		}
		if size > 2*maxEventBytes {
			t.Errorf("a page has %d bytes", size)
		}
		since = page[len(page)-1].Seq
	}
	if end := must(ReadEnd(t.Context(), l.db.Read))(t); since != end.Seq || pages < 5 {
		t.Errorf("%d pages up to event %d, want all %d", pages, since, end.Seq)
	}
}

func TestTheTrailIsVerifiedWithoutHoldingIt(t *testing.T) {
	l := newLedger(t, Options{})
	fillTrail(t, l, 40)
	runtime.GC()
	peak := make(chan uint64, 1)
	done := make(chan struct{})
	go func() {
		var most uint64
		for {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				peak <- most
				return
			default:
			}
		}
	}()
	must(l.VerifyAudit(t.Context()))(t)
	close(done)
	if most := <-peak; most > 30<<20 {
		t.Errorf("%d MiB were in use for a trail of 40 MiB", most>>20)
	}
}
