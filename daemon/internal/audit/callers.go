// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strings"
	"sync"
)

// mostCallers bounds how many ops are remembered.
const mostCallers = 1000

// Callers remembers who asked for the last ops, for the audit trail of the registry. After a
// restart it has forgotten all of them. The zero value is ready; it is safe for concurrent use.
type Callers struct {
	mu   sync.Mutex
	byOp map[string]string
	ops  []string // oldest first
}

// Note remembers who asked for an op.
func (c *Callers) Note(opID, who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.byOp[opID]; known {
		return // whoever repeats a request has not begun the op
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

// Of returns who asked for the op whose request to the registry has this key: the id of the op,
// or one that begins with it and a dot. It is empty if that is not known.
func (c *Callers) Of(key string) string {
	opID, _, _ := strings.Cut(key, ".")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byOp[opID]
}
