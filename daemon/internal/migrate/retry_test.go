// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

func TestWhatCannotBeBegunIsTriedLessAndLessOftenUntilThereIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s retries
		var n atomic.Int64
		var try func()
		try = func() {
			n.Add(1)
			s.schedule("m", errors.New("not yet"), try)
		}
		more := func(d time.Duration) int64 {
			before := n.Load()
			pass(d)
			synctest.Wait()
			return n.Load() - before
		}
		try()
		if n := more(time.Minute); n < 10 || n > 15 {
			t.Errorf("%d tries in the first minute", n)
		}
		more(time.Hour)
		s.expedite()
		if n := more(2*replanDelay + replanDelay/2); n != 2 {
			t.Errorf("%d tries after there was news, want 2", n)
		}
		s.forget("m")
		if n := more(time.Hour); n != 0 {
			t.Errorf("%d tries after it went on", n)
		}
	})
}

// The host is fenced between two ops of a `volume migrate`.
func TestAMigrationBetweenTwoOpsGoesOnSoonAfterTheHostIsBack(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		halted := make(chan struct{})
		d.journal.AfterAppend(func(r op.Record) {
			if r.Kind == op.EventFinished {
				d.journal.AfterAppend(nil)
				go func() { d.runner().Halt(); close(halted) }()
				pass(time.Millisecond)
			}
		})
		id := d.migrate()
		<-halted
		pass(time.Hour)
		if mig := d.get(id); mig.State != api.MigrationStarted {
			t.Errorf("the migration is %s, want it between its start and its copy", mig.State)
		}
		d.manager().Wake(false, true)
		must(t, d.runner().Resume(context.Background()))
		began := time.Now()
		d.until(id, api.MigrationCopying, api.MigrationCopied, api.MigrationCompleting, api.MigrationCompleted)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it went on after %s", took)
		}
		d.moved(d.until(id, api.MigrationCompleted))
	})
}
