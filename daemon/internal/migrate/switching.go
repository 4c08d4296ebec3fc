// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"

	"github.com/volferry/volferry/daemon/internal/request"
)

// Switching says whether a migration may be holding the instance paused now: it
// must not be let run by anybody else then.
func (m *Manager) Switching(instanceID string) bool {
	for _, st := range m.runner.Active() {
		if duringPause[st.Step] && slices.Contains(st.Op.Keys, request.InstanceKey(instanceID)) {
			return true
		}
	}
	return false
}
