// SPDX-License-Identifier: Apache-2.0

package released

import (
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// writtenSource is a released source that may have data that its volume lacks, with the ids of the
// instances that have the volume.
type writtenSource struct {
	api.ReleasedSource
	instances []string
}

// writtenSources are the written sources at the watch's last look.
type writtenSources struct {
	mu    sync.Mutex
	found []writtenSource
	// failed is the error of the last incomplete look, as it was logged.
	failed string
	// noted has the migrations with a written source in the audit trail.
	noted map[string]bool
}
