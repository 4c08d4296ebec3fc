// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

const waitGuest = "guest"

func waits(st op.Status) string {
	switch {
	case st.Waiting == waitGuest, st.State == op.StateUndoing && st.Step == stepNameAttachLive: // the step may be asking once more
		return "it cannot be and is undone, and the guest has to let go of the disk first"
	case st.Waiting == request.WaitTurn:
		return "another operation on the instance or the volume has to end first"
	}
	return ""
}
