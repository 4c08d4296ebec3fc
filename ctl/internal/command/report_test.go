// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/ctl/internal/session"
)

func TestWaitThatWasLeftIsNoSuccess(t *testing.T) {
	var stderr strings.Builder
	if exit := report(&stderr, &session.DetachedError{Advice: "Detached; follow it so"}, session.Program, false); exit != exitInterrupted {
		t.Errorf("exit status = %d, want %d: what was asked for is not done", exit, exitInterrupted)
	}
	if got := stderr.String(); got != "Detached; follow it so\n" {
		t.Errorf("stderr = %q", got)
	}
}

func TestOnlyAChangeThatWasSentMayHaveBeenDone(t *testing.T) {
	interrupted := fmt.Errorf("wait: %w", context.Canceled)
	for err, want := range map[error]bool{
		interrupted: false, fmt.Errorf("%w: %w", session.ErrMaybeDone, interrupted): true,
	} {
		var stderr strings.Builder
		if exit := report(&stderr, err, session.Program, false); exit != exitInterrupted || strings.Contains(stderr.String(), "may have been done") != want {
			t.Errorf("%v: exit status %d, %q", err, exit, stderr.String())
		}
	}
}
