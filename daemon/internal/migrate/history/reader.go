// SPDX-License-Identifier: Apache-2.0

// Package history reads migrations from the journal. A migration is a group of ops, which
// determine its state, position and next op.
package history

import (
	"sync"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Reader reads this host's migrations. It is safe for concurrent use. Runner runs the ops of
// Journal.
type Reader struct {
	Journal Journal
	Runner  *op.Runner

	// ended has the ids of ended migrations, which a list of open migrations need not read again.
	ended sync.Map
}
