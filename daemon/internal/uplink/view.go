// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"time"

	"github.com/volferry/volferry/internal/api"
)

// View is the registry's last data that this host may see. It has the host's attachments at a
// fence.
type View struct {
	// ReadAt is the time of the read, for people; Mark is the registry's mark then.
	ReadAt      time.Time         `json:"read_at"`
	Mark        *api.RegistryMark `json:"mark,omitempty"`
	Hosts       []api.Host        `json:"hosts"`
	Pools       []api.Pool        `json:"pools"`
	Types       []api.VolumeType  `json:"types"`
	Policies    []api.Policy      `json:"policies"`
	Volumes     []api.Volume      `json:"volumes"`
	Instances   []api.Instance    `json:"instances"`
	Attachments []api.Attachment  `json:"attachments"`
}

// pendingView is a view that was read after a report. It becomes current after a later report
// under the same epoch: the host was not fenced at the read, so no missing attachment was taken by
// force.
type pendingView struct {
	view View
	at   time.Time
	// taken is the number of grants before the read.
	taken int64
}
