// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// streams opens one stream after the other, and repeats the last one. A stream is its events, ended
// by err if that is not nil.
type streams []struct {
	seqs []int64
	err  error
}

func (s *streams) open(_ context.Context, since int64) iter.Seq2[api.Event, error] {
	now := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	return func(yield func(api.Event, error) bool) {
		for _, seq := range now.seqs {
			if seq > since && !yield(api.Event{Seq: seq}, nil) {
				return
			}
		}
		if now.err != nil {
			yield(api.Event{}, now.err)
		}
	}
}

func never(context.Context) (bool, error) { return false, nil }

var errAway = api.Errorf(api.CodeHypervisorUnavailable, "away")

func TestEventsComeOnceAndInOrderAcrossBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := streams{{seqs: []int64{1, 2}, err: errAway}, {seqs: []int64{1, 2, 3}}, {seqs: []int64{2, 3, 4}}}
		f := Follower{Open: s.open, Ended: never, OnOutage: func(error) {}}
		var got []int64
		err := f.Run(t.Context(), 0, func(e api.Event) bool {
			got = append(got, e.Seq)
			return e.Seq < 4
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int64{1, 2, 3, 4}, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestEndThatTheStreamDidNotTellIsFoundByAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := streams{{seqs: []int64{1}}}
		f := Follower{Open: s.open, Ended: func(context.Context) (bool, error) { return true, nil }, OnOutage: func(error) {}}
		if err := f.Run(t.Context(), 0, func(api.Event) bool { return true }); err != nil {
			t.Errorf("run() = %v", err)
		}
	})
}

func TestOutageIsToldOnceAndGivenUpAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, began := 0, time.Now()
		s := streams{{seqs: []int64{1}, err: errAway}, {err: errAway}}
		f := Follower{
			Open:     s.open,
			Ended:    func(context.Context) (bool, error) { return false, errAway },
			OnOutage: func(error) { told++ },
		}
		err := f.Run(t.Context(), 0, func(api.Event) bool { return true })
		if !errors.Is(err, ErrConnectionLost) || !errors.Is(err, errAway) {
			t.Errorf("run() = %v, want ErrConnectionLost with the reason", err)
		}
		if took := time.Since(began); told != 1 || took < outageTimeout || took > outageTimeout+2*outageBackoff.Max {
			t.Errorf("told %d times, gave up after %s; want once, after %s", told, took, outageTimeout)
		}
	})
}

func TestSlowMigrationIsNotTakenForAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := streams{{}}
		f := Follower{
			Open:     s.open,
			Ended:    func(context.Context) (bool, error) { return time.Since(began) > 10*outageTimeout, nil },
			OnOutage: func(err error) { t.Errorf("lost: %v", err) },
		}
		if err := f.Run(t.Context(), 0, func(api.Event) bool { return true }); err != nil {
			t.Errorf("run() = %v", err)
		}
	})
}

func TestAnswerThatIsNoOutageEndsTheFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := api.Errorf(api.CodeNotFound, "no such operation")
		s := streams{{err: gone}}
		f := Follower{Open: s.open, Ended: never, OnOutage: func(error) {}}
		if err := f.Run(t.Context(), 0, func(api.Event) bool { return true }); !errors.Is(err, gone) {
			t.Errorf("run() = %v, want %v", err, gone)
		}
	})
}

func TestWhatWasWaitedForIsAskedForAgainDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{errAway, errAway, nil}
		ask := func() error {
			err := answers[0]
			answers = answers[1:]
			return err
		}
		if err := retryOutage(t.Context(), ask); err != nil || len(answers) > 0 {
			t.Errorf("outlast() = %v with %d answers left, want the last one", err, len(answers))
		}
		refused := api.Errorf(api.CodeNotFound, "not there")
		if err := retryOutage(t.Context(), func() error { return refused }); !errors.Is(err, refused) {
			t.Errorf("outlast() = %v, want %v", err, refused)
		}
		began := time.Now()
		if err := retryOutage(t.Context(), func() error { return errAway }); !errors.Is(err, errAway) || time.Since(began) < outageTimeout {
			t.Errorf("outlast() = %v after %s, want %v after %s", err, time.Since(began), errAway, outageTimeout)
		}
	})
}
