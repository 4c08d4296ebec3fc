// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"time"

	"github.com/volferry/volferry/internal/api"
)

// View has the registry's last data that this host may see. After a fence it shows which
// attachments the host had.
type View struct {
	// ReadAt is the time of the read, for people. Mark is the registry's mark at the read.
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
// under the same epoch, which proves that the host was not fenced at the read: no attachment is
// missing because of a fence.
type pendingView struct {
	view  View
	at    time.Time
	taken int64
}
