// SPDX-License-Identifier: Apache-2.0

// Package history reads migrations from the journal: a migration is the group of its ops, and its
// state, its position and its next op follow from them alone.
package history

import (
	"sync"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Reader reads migrations from the journal of this host. It is safe for concurrent use. Runner is
// the runner of the journal.
type Reader struct {
	Journal Journal
	Runner  *op.Runner

	// ended has the ids of migrations that have ended, so that their history is not read again to
	// list the open ones.
	ended sync.Map
}
