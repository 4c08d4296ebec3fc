// SPDX-License-Identifier: Apache-2.0

package hv_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func TestUnansweredNamesTheSilentComponentAndThatNothingWasChanged(t *testing.T) {
	for want, err := range map[string]error{
		"libvirt does not answer; nothing was changed": fmt.Errorf("list: %w", hv.ErrUnavailable),
		"no helper; nothing was changed":               fmt.Errorf("list: %w", &hv.NotAskedError{Err: errors.New("no helper")}),
	} {
		if got := hv.Unanswered(err); got != want {
			t.Errorf("the refusal is %q, want %q", got, want)
		}
	}
}
