// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func TestAnOpThatAnotherProgramsJobIsInTheWayOfSaysWhenToTryAgain(t *testing.T) {
	f := Describe(fmt.Errorf("detach vdb: %w", hv.ErrBusy))
	if f.Code != string(api.CodeInstanceBusy) || !strings.HasPrefix(f.Message, "detach vdb: ") || !strings.Contains(f.Message, "try again once it is over") {
		t.Errorf("%s: %s", f.Code, f.Message)
	}
}

func TestARequestThatTheRegistryDoesNotAnswerSaysWhoNeedsItAndThatNothingWasChanged(t *testing.T) {
	away := api.Errorf(api.CodeRegistryUnavailable, "cannot connect to /run/volferry/registry.sock: nobody listens there")
	got := Refused(away)
	const want = "volferryd of this host needs the registry, and nothing was changed: cannot connect to /run/volferry/registry.sock: nobody listens there; on the registry's machine `systemctl status volferry-registry` shows more"
	if api.CodeOf(got) != api.CodeRegistryUnavailable || got.Error() != want {
		t.Errorf("%s: %v", api.CodeOf(got), got)
	}
	if again := Refused(got); again.Error() != want {
		t.Errorf("refused twice: %v", again)
	}
	if taken := api.Errorf(api.CodeConflict, "the name is taken"); Refused(taken).Error() != taken.Error() {
		t.Errorf("another refusal: %v", Refused(taken))
	}
}
