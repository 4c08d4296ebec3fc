// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/op"
)

func TestAnEndIsToldOnceAndNotAgainAfterARestart(t *testing.T) {
	bubble(t, func(s *stage) {
		var ends []string
		s.onFinished = func(st op.Status) {
			s.status(st.Op.ID) // no lock is held
			ends = append(ends, st.Op.ID+" "+string(st.State))
		}
		s.start()
		s.submit("a")
		s.wait("a", op.StateDone)
		s.commit.Do = fails(errBoom)
		s.start()
		s.submit("a")
		s.submit("b")
		s.wait("b", op.StateUndone)
		s.start()
		synctest.Wait()
		if diff := cmp.Diff([]string{"a done", "b undone"}, ends); diff != "" {
			t.Errorf("ends (-want +got)\n%s", diff)
		}
	})
}

func TestActiveOpsAreThoseThatAreNotFinished(t *testing.T) {
	bubble(t, func(s *stage) {
		s.start()
		s.submit("over")
		s.wait("over", op.StateDone)
		s.commit.Observe = always(op.Unknown, nil)
		s.start()
		s.submit("parked", "key")
		s.wait("parked", op.StateNeedsOperator)
		s.submit("behind", "key")
		synctest.Wait()
		var got []string
		for _, st := range s.runner.Active() {
			got = append(got, st.Op.ID+" "+string(st.State))
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"behind running", "parked needs_operator"}, got); diff != "" {
			t.Errorf("active ops (-want +got)\n%s", diff)
		}
	})
}
