// SPDX-License-Identifier: Apache-2.0

package optest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/op"
)

// JournalConformance tests the promises of op.Journal. open returns an empty journal.
func JournalConformance(t *testing.T, open func(t *testing.T) op.Journal) {
	claims := []struct {
		name string
		run  func(t *testing.T, j op.Journal)
	}{
		{"AnOpComesBackAsItWasCreated", opComesBack},
		{"TheSameOpTwiceIsOneOp", sameOpTwice},
		{"ADifferentOpWithTheSameIDIsAMismatch", differentOpIsMismatch},
		{"AnAbsentOpIsNotFound", absentOpIsNotFound},
		{"RecordsComeBackInOrder", recordsComeBack},
		{"ARecordThatIsNotDueIsRefused", recordOutOfTurnIsRefused},
		{"RecordsAreStoredTogetherOrNotAtAll", recordsAreStoredTogether},
		{"ARecordOfAnAbsentOpIsRefused", recordOfAbsentOpIsRefused},
		{"UnfinishedIsInTheOrderOfCreationWhateverTheClock", unfinishedInOrder},
		{"AGroupIsInTheOrderOfCreation", groupInOrder},
	}
	for _, c := range claims {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 123456789, time.UTC)

func sampleOp(id string) op.Op {
	return op.Op{
		ID: id, Kind: "move", Group: "m1", Keys: []string{"instance/1", "volume/2"},
		Input: json.RawMessage(`{"to": "pool-b"}`), CreatedAt: noon,
		Steps: []op.StepRef{{Name: "first"}, {Name: "second", Version: 2}}, Commit: "second",
	}
}

func mustCreate(t *testing.T, j op.Journal, ops ...op.Op) {
	t.Helper()
	for _, o := range ops {
		if _, err := j.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func mustAppend(t *testing.T, j op.Journal, records ...op.Record) {
	t.Helper()
	for _, r := range records {
		if err := j.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func opComesBack(t *testing.T, j op.Journal) {
	want := sampleOp("a")
	bare := op.Op{ID: "b", Kind: "bare", CreatedAt: noon}
	mustCreate(t, j, want, bare)
	for _, o := range []op.Op{want, bare} {
		got, err := j.Op(t.Context(), o.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

func sameOpTwice(t *testing.T, j op.Journal) {
	first := sampleOp("a")
	again := first
	again.CreatedAt, again.Steps, again.Commit = noon.Add(time.Hour), []op.StepRef{{Name: "other"}}, ""
	mustCreate(t, j, first)
	if stored, err := j.Create(t.Context(), again); err != nil || !cmp.Equal(first, stored) {
		t.Errorf("the second time: got %+v (%v), want the op as it is stored", stored, err)
	}
	ops, err := j.Unfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]op.Op{first}, ops); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func differentOpIsMismatch(t *testing.T, j op.Journal) {
	mustCreate(t, j, sampleOp("a"))
	changes := map[string]func(*op.Op){
		"kind":  func(o *op.Op) { o.Kind = "other" },
		"group": func(o *op.Op) { o.Group = "other" },
		"input": func(o *op.Op) { o.Input = json.RawMessage(`{}`) },
	}
	for name, change := range changes {
		o := sampleOp("a")
		change(&o)
		if _, err := j.Create(t.Context(), o); !errors.Is(err, op.ErrMismatch) {
			t.Errorf("other %s: got %v, want ErrMismatch", name, err)
		}
	}
}

func absentOpIsNotFound(t *testing.T, j op.Journal) {
	if _, err := j.Op(t.Context(), "none"); !errors.Is(err, op.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func recordsComeBack(t *testing.T, j op.Journal) {
	mustCreate(t, j, sampleOp("a"), sampleOp("b"))
	want := []op.Record{
		{OpID: "a", Seq: 1, At: noon, Step: "one", Kind: op.EventStarted},
		{OpID: "a", Seq: 2, At: noon.Add(time.Nanosecond), Step: "one", Kind: op.EventSucceeded, Data: json.RawMessage(`{"n":1}`)},
		{OpID: "a", Seq: 3, At: noon.Add(-time.Hour), Kind: op.EventFinished},
	}
	mustAppend(t, j, want[0], op.Record{OpID: "b", Seq: 1, At: noon, Step: "one", Kind: op.EventStarted}, want[1], want[2])
	got, err := j.Records(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func recordOutOfTurnIsRefused(t *testing.T, j op.Journal) {
	mustCreate(t, j, sampleOp("a"))
	first := op.Record{OpID: "a", Seq: 1, At: noon, Step: "one", Kind: op.EventStarted}
	mustAppend(t, j, first)
	for _, seq := range []int64{0, 1, 3} {
		r := first
		r.Seq = seq
		if err := j.Append(t.Context(), r); !errors.Is(err, op.ErrJournal) {
			t.Errorf("record %d after record 1: got %v, want ErrJournal", seq, err)
		}
	}
}

func recordsAreStoredTogether(t *testing.T, j op.Journal) {
	mustCreate(t, j, sampleOp("a"), sampleOp("b"))
	want := []op.Record{
		{OpID: "a", Seq: 1, At: noon, Step: "one", Kind: op.EventStarted},
		{OpID: "a", Seq: 2, At: noon, Step: "one", Kind: op.EventSucceeded, Data: json.RawMessage(`{"n":1}`)},
		{OpID: "a", Seq: 3, At: noon, Step: "two", Kind: op.EventStarted},
	}
	mustAppend(t, j, want[0])
	otherOp, gap := want[2], want[2]
	otherOp.OpID, gap.Seq = "b", 4
	for name, second := range map[string]op.Record{"of another op": otherOp, "behind a gap": gap, "the same again": want[1]} {
		if err := j.Append(t.Context(), want[1], second); !errors.Is(err, op.ErrJournal) {
			t.Errorf("a record and one %s: got %v, want ErrJournal", name, err)
		}
	}
	if err := j.Append(t.Context(), want[1:]...); err != nil {
		t.Fatal(err)
	}
	got, err := j.Records(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func recordOfAbsentOpIsRefused(t *testing.T, j op.Journal) {
	r := op.Record{OpID: "none", Seq: 1, At: noon, Step: "one", Kind: op.EventStarted}
	if err := j.Append(t.Context(), r); !errors.Is(err, op.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func unfinishedInOrder(t *testing.T, j op.Journal) {
	first, second, third := sampleOp("z"), sampleOp("m"), sampleOp("a")
	second.CreatedAt = noon.Add(-time.Hour)
	mustCreate(t, j, first, second, third)
	mustAppend(t, j, op.Record{OpID: "m", Seq: 1, At: noon, Kind: op.EventFinished})
	wantIDs(t, []string{"z", "a"}, j.Unfinished)
}

func groupInOrder(t *testing.T, j op.Journal) {
	other := sampleOp("x")
	other.Group = "m2"
	single := sampleOp("s")
	single.Group = ""
	mustCreate(t, j, sampleOp("z"), other, single, sampleOp("a"))
	wantIDs(t, []string{"z", "a"}, func(ctx context.Context) ([]op.Op, error) { return j.Group(ctx, "m1") })
	wantIDs(t, nil, func(ctx context.Context) ([]op.Op, error) { return j.Group(ctx, "") })
}

func wantIDs(t *testing.T, want []string, list func(context.Context) ([]op.Op, error)) {
	t.Helper()
	ops, err := list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range ops {
		got = append(got, o.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
