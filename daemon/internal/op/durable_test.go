// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/op"
)

// A step is made durable before the journal records it as done or undone. While that fails, there
// is no record.
func TestAnEffectIsDurableBeforeItsRecord(t *testing.T) {
	bubble(t, func(s *stage) {
		s.commit.Do = fails(errBoom)
		refusals := 2
		s.cfg.MakeDurable = func() error {
			if refusals > 0 {
				refusals--
				s.mark("refused")
				return errBoom
			}
			s.mark("durable")
			return nil
		}
		s.journal.AfterAppend(func(r op.Record) {
			if r.Kind == op.EventSucceeded || r.Kind == op.EventUndone {
				s.mark("record " + r.Step)
			}
		})
		s.start()
		s.submit("a")
		s.wait("a", op.StateUndone)
		s.mu.Lock()
		trace := slices.Clone(s.trace)
		s.mu.Unlock()
		s.wantTrace("first", "refused", "refused", "durable", "record first", "undo commit", "durable", "record commit", "undo first", "durable", "record first")
		for i, what := range trace {
			if what == "record first" && trace[i-1] != "durable" {
				t.Errorf("record %d follows %q", i, trace[i-1])
			}
		}
	})
}
