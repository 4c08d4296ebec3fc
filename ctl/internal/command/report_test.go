// SPDX-License-Identifier: Apache-2.0

package command

import (
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
