// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// waitGuest is what ops wait for: a guest that has to let go of a disk which it may
// not keep.
const waitGuest = "guest"

// waits says what an op waits for where attachments have words of their own.
func waits(st op.Status) string {
	switch {
	case st.Waiting == waitGuest, st.State == op.StateUndoing && st.Step == stepNameAttachLive: // or it asks once more just now
		return "it cannot be and is undone, and the guest has to let go of the disk first"
	case st.Waiting == request.WaitTurn:
		return "another operation on the instance or the volume has to end first"
	}
	return ""
}
