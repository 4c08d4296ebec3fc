// SPDX-License-Identifier: Apache-2.0

package op_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
)

// unreadable is a journal that cannot read records for a while.
type unreadable struct {
	*optest.Journal
	fails atomic.Int32
}

func (j *unreadable) Records(ctx context.Context, opID string) ([]op.Record, error) {
	if j.fails.Add(-1) >= 0 {
		return nil, op.ErrJournal
	}
	return j.Journal.Records(ctx, opID)
}

// A stored op looks like a running one, so it must run.
func TestAnOpThatIsStoredAndCannotBeReadBackRunsOnceItCan(t *testing.T) {
	bubble(t, func(s *stage) {
		s.restart()
		s.runner.Stop()
		j := &unreadable{Journal: s.journal}
		cfg := s.cfg
		cfg.Journal = j
		runner := s.newRunner(cfg)
		defer runner.Stop()
		if err := runner.Resume(s.t.Context()); err != nil {
			t.Fatal(err)
		}
		j.fails.Store(5)
		if err := runner.Submit(s.t.Context(), op.Op{ID: "a", Kind: "k"}); !errors.Is(err, op.ErrJournal) {
			t.Fatalf("submit: got %v, want ErrJournal", err)
		}
		for {
			st, err := runner.Wait(s.t.Context(), "a")
			if err == nil {
				if st.State != op.StateDone {
					t.Errorf("the op is %s", st.State)
				}
				return
			}
			<-time.After(time.Second)
		}
	})
}
