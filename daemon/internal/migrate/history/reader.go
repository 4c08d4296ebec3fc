// SPDX-License-Identifier: Apache-2.0

// Package history reads migrations from the journal: a migration is the group of its ops, which
// determine its state, position and next op.
package history

import (
	"sync"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Reader reads this host's migrations. It is safe for concurrent use. Runner is the runner of the
// journal.
type Reader struct {
	Journal Journal
	Runner  *op.Runner

	// ended has the ids of ended migrations, which are not read again to list the open ones.
	ended sync.Map
}
