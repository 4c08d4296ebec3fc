// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strings"
	"sync"
)

const mostCallers = 1000

// Callers stores the callers of the latest ops for the registry's audit trail. It is only in
// memory. The zero value is ready, and safe for concurrent use.
type Callers struct {
	mu   sync.Mutex
	byOp map[string]string
	ops  []string // oldest first
}

// Note records the caller of an op.
func (c *Callers) Note(opID, who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.byOp[opID]; known {
		return // a repeated request does not change the op's caller
	}
	if c.byOp == nil {
		c.byOp = map[string]string{}
	}
	if len(c.ops) == mostCallers {
		delete(c.byOp, c.ops[0])
		c.ops = c.ops[1:]
	}
	c.byOp[opID], c.ops = who, append(c.ops, opID)
}

// Of returns the caller of the op that made a registry request with this key, or "". The key is
// the op's id, perhaps followed by a dot and a suffix.
func (c *Callers) Of(key string) string {
	opID, _, _ := strings.Cut(key, ".")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byOp[opID]
}
