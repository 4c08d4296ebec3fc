// SPDX-License-Identifier: Apache-2.0

package released

import (
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// writtenSource is a source that a move has left and that may have data that its volume lacks,
// with the ids of the volume's instances.
type writtenSource struct {
	api.ReleasedSource
	instances []string
}

type writtenSources struct {
	mu    sync.Mutex
	found []writtenSource
	// failed is the last logged error of a look that missed sources.
	failed string
	// noted has the migrations with a written source that is in the audit trail.
	noted map[string]bool
}
