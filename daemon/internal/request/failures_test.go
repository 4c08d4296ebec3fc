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
