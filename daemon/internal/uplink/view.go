// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"time"

	"github.com/volferry/volferry/internal/api"
)

// View is what the registry last said of everything that this host may see. It answers
// reads while the registry is away, and says what the host had when the host learns that it
// was fenced.
type View struct {
	// ReadAt is when it was read, for people; Mark says how far the registry was.
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

// pendingView is a view that was read after a report. It counts only when a later
// report under the same epoch was taken: then the host was not fenced when it
// was read, so an attachment that is missing in it was not taken by force.
type pendingView struct {
	view View
	at   time.Time // when it was read
	// taken is how many grants there were before it was read.
	taken int64
}
