// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// notices returns the notices within a time about an op in the states of ask.
func notices(t *testing.T, within time.Duration, unknown string, ask func(began time.Time) *api.Op) []string {
	t.Helper()
	var lines []string
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		w := waitNotice{
			readOp: func(context.Context) *api.Op { return ask(began) },
			before: unknown,
			say:    func(line string) { lines = append(lines, line) },
		}
		w.run(ctx)
	})
	return lines
}

func TestAWaitIsToldOnceItLastsAndAgainNowAndThen(t *testing.T) {
	got := notices(t, 50*time.Second, "", func(began time.Time) *api.Op {
		away := began.Add(-time.Minute) // before the first read
		return &api.Op{State: "running", Step: "store", WaitingFor: "registry", WaitingSince: &away}
	})
	want := []string{
		"Waiting for the registry, which does not answer (1m3s); Ctrl-C leaves it running.",
		"Waiting for the registry, which does not answer (1m33s); Ctrl-C leaves it running.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestAnotherReasonToWaitIsNews(t *testing.T) {
	got := notices(t, 20*time.Second, "", func(began time.Time) *api.Op {
		if time.Since(began) < 10*time.Second {
			return &api.Op{State: "running", WaitingFor: "turn", Behind: "o-1", WaitingSince: &began}
		}
		return &api.Op{State: "running", Step: "power_off"}
	})
	want := []string{
		"Waiting for operation o-1, which was requested before (3s); Ctrl-C leaves it running.",
		"Waiting for the guest to shut down (5s); Ctrl-C leaves it running.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestWhatWorksOrIsOverIsNoWait(t *testing.T) {
	for what, op := range map[string]*api.Op{
		"works": {State: "running", Step: "copy"}, "over": {State: api.OpDone, Step: "power_off"}, "unknown": nil,
	} {
		if got := notices(t, time.Minute, "", func(time.Time) *api.Op { return op }); got != nil {
			t.Errorf("%s: told %s", what, strings.Join(got, "; "))
		}
	}
}

func TestAnAnswerThatDoesNotComeIsWaitedFor(t *testing.T) {
	got := notices(t, 4*time.Second, "an answer from /run/s", func(time.Time) *api.Op { return nil })
	if diff := cmp.Diff([]string{"Waiting for an answer from /run/s (3s)."}, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
