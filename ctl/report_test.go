// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestWaitThatWasLeftIsNoSuccess(t *testing.T) {
	var stderr strings.Builder
	if exit := report(&stderr, &detachedError{advice: "Detached; follow it so"}, programName, false); exit != exitInterrupted {
		t.Errorf("exit status = %d, want %d: what was asked for is not done", exit, exitInterrupted)
	}
	if got := stderr.String(); got != "Detached; follow it so\n" {
		t.Errorf("stderr = %q", got)
	}
}
