// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// writtenSource is a released source that may have what its volume lacks, with the ids of the
// instances that have the volume.
type writtenSource struct {
	api.ReleasedSource
	instances []string
}

// writtenSources are those that the watch has seen last.
type writtenSources struct {
	mu    sync.Mutex
	found []writtenSource
	// failed is why the watch could not look at all of them, as it was logged last.
	failed string
	// noted has the migrations whose sources the audit trail was told of.
	noted map[string]bool
}
