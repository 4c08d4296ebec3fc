// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNextAllowsExactlyWhatItsDrawingShows(t *testing.T) {
	allowed := map[StepStatus]map[EventKind]StepStatus{
		StepPending: {EventStarted: StepStarted},
		StepStarted: {
			EventStarted: StepStarted, EventNoted: StepStarted,
			EventSucceeded: StepSucceeded, EventFailed: StepFailed,
		},
		StepSucceeded:   {EventUndoStarted: StepUndoStarted},
		StepFailed:      {EventUndoStarted: StepUndoStarted},
		StepUndoStarted: {EventUndoStarted: StepUndoStarted, EventNoted: StepUndoStarted, EventUndone: StepUndone, EventUndoFailed: StepStuck},
		StepUndone:      {},
		StepStuck:       {EventUndoStarted: StepUndoStarted},
	}
	events := []EventKind{
		EventStarted, EventNoted, EventSucceeded, EventFailed, EventUndoStarted, EventUndone,
		EventUndoFailed, EventFinished, EventNeedsOperator, EventResumed, "",
	}
	for status, next := range allowed {
		for _, e := range events {
			got, err := Next(status, e)
			want, ok := next[e]
			if !ok {
				want = status
			}
			if got != want || (err == nil) != ok {
				t.Errorf("Next(%s, %s) = %s, %v", status, e, got, err)
			}
		}
	}
}

func nothing(context.Context, *Run) error { return nil }

func abc() *Plan {
	return &Plan{
		Kind: "abc", Commit: "b",
		Steps: []Step{{Name: "a", Do: nothing}, {Name: "b", Do: nothing}, {Name: "c", Do: nothing}},
	}
}

// history makes records from pairs of step and kind.
func history(pairs ...string) []Record {
	var records []Record
	for i := 0; i < len(pairs); i += 2 {
		r := Record{OpID: "x", Seq: int64(i/2 + 1), At: time.Unix(int64(i), 0), Step: pairs[i], Kind: EventKind(pairs[i+1])}
		switch r.Kind {
		case EventFailed, EventUndoFailed, EventNeedsOperator:
			r.Data = json.RawMessage(`{"code":"` + pairs[i+1] + `","message":""}`)
		default:
		}
		records = append(records, r)
	}
	return records
}

func TestReplayTellsWhereAnOpStands(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []Record
		state   State
		current int
		steps   []StepStatus
		failure string
	}{
		{"new", nil, StateRunning, 0, []StepStatus{StepPending, StepPending, StepPending}, ""},
		{
			"in the second step", history("a", "started", "a", "succeeded", "b", "started"),
			StateRunning, 1,
			[]StepStatus{StepSucceeded, StepStarted, StepPending},
			"",
		},
		{
			"failed", history("a", "started", "a", "succeeded", "b", "started", "b", "failed"),
			StateUndoing, 1,
			[]StepStatus{StepSucceeded, StepFailed, StepPending},
			"failed",
		},
		{
			"undone but for the end",
			history("a", "started", "a", "succeeded", "b", "started", "b", "failed", "b", "undo_started", "b", "undone", "a", "undo_started", "a", "undone"),
			StateUndoing, -1,
			[]StepStatus{StepUndone, StepUndone, StepPending},
			"failed",
		},
		{
			"parked", history("a", "started", "", "needs_operator"),
			StateNeedsOperator, 0,
			[]StepStatus{StepStarted, StepPending, StepPending},
			"needs_operator",
		},
		{
			"resumed", history("a", "started", "", "needs_operator", "", "resumed"),
			StateRunning, 0,
			[]StepStatus{StepStarted, StepPending, StepPending},
			"",
		},
		{
			"resumed while undoing, which the first failure still explains",
			history("a", "started", "a", "failed", "a", "undo_started", "a", "undo_failed", "", "needs_operator", "", "resumed"),
			StateUndoing, 0,
			[]StepStatus{StepStuck, StepPending, StepPending},
			"failed",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Replay(abc(), c.records)
			if err != nil {
				t.Fatal(err)
			}
			if p.State != c.state || p.Current != c.current {
				t.Errorf("state %s at %d, want %s at %d", p.State, p.Current, c.state, c.current)
			}
			if diff := cmp.Diff(c.steps, p.Steps); diff != "" {
				t.Errorf("steps (-want +got)\n%s", diff)
			}
			code := ""
			if p.Failure != nil {
				code = p.Failure.Code
			}
			if code != c.failure {
				t.Errorf("failure %q, want %q", code, c.failure)
			}
		})
	}
}

func TestReplayKeepsTheLastOutputAndNoteAndTheCommitPoint(t *testing.T) {
	records := history("a", "started", "a", "noted", "a", "noted", "a", "succeeded", "b", "started", "b", "succeeded")
	records[1].Data, records[2].Data = json.RawMessage(`1`), json.RawMessage(`2`)
	records[3].Data = json.RawMessage(`"out"`)
	p, err := Replay(abc(), records[:5])
	if err != nil || p.Committed {
		t.Fatalf("committed %v before the commit point, %v", p.Committed, err)
	}
	if p, err = Replay(abc(), records); err != nil || !p.Committed {
		t.Fatalf("committed %v, %v", p.Committed, err)
	}
	if string(p.Notes["a"]) != "2" || string(p.Outputs["a"]) != `"out"` {
		t.Errorf("notes %s, outputs %s", p.Notes, p.Outputs)
	}
}

func TestReplayRefusesAnImpossibleHistory(t *testing.T) {
	withGap := history("a", "started", "a", "succeeded")
	withGap[1].Seq = 3
	badFailure := history("a", "started", "a", "failed")
	badFailure[1].Data = json.RawMessage(`"text"`)
	for name, records := range map[string][]Record{
		"gap":                          withGap,
		"failure that is none":         badFailure,
		"unknown step":                 history("z", "started"),
		"unknown kind":                 history("a", "exploded"),
		"second step first":            history("b", "started"),
		"success without start":        history("a", "succeeded"),
		"undo although nothing failed": history("a", "started", "a", "succeeded", "a", "undo_started"),
		"undo in the wrong order":      history("a", "started", "a", "succeeded", "b", "started", "b", "failed", "a", "undo_started"),
		"failure behind the commit":    history("a", "started", "a", "succeeded", "b", "started", "b", "succeeded", "c", "started", "c", "failed"),
		"finish in the middle":         history("a", "started", "", "finished"),
		"finish before the undoing":    history("a", "started", "a", "failed", "", "finished"),
		"step while parked":            history("a", "started", "", "needs_operator", "a", "started"),
		"parked twice":                 history("a", "started", "", "needs_operator", "", "needs_operator"),
		"resumed but not parked":       history("a", "started", "", "resumed"),
		"op record with a step":        history("a", "needs_operator"),
		"step record without a step":   history("", "started"),
		"forward after a failure":      history("a", "started", "a", "failed", "a", "started"),
		"record after the end":         append(history("a", "started", "a", "succeeded", "b", "started", "b", "succeeded", "c", "started", "c", "succeeded", "", "finished"), Record{Seq: 8, Step: "a", Kind: EventStarted}),
	} {
		if _, err := Replay(abc(), records); !errors.Is(err, ErrHistory) {
			t.Errorf("%s: got %v, want ErrHistory", name, err)
		}
	}
}
