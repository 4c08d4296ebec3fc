// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func TestWhatAFoldHasWrittenIsFlushedEach128MiBAndOneFlushAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, goOn := 0, make(chan struct{})
		behind := flushBehind{flush: func() { begun++; <-goOn }}
		for _, at := range []struct {
			mib   int64
			ends  bool // the flush that runs
			begun int
		}{
			{1, false, 0},
			{127, false, 0},
			{130, false, 1},
			{300, false, 1}, // the first is not over
			{310, true, 2},
			{400, true, 2}, // 90 MiB are not enough
			{500, false, 3},
			{1000, true, 4},
		} {
			if at.ends {
				select {
				case goOn <- struct{}{}:
				default: // none runs
				}
				synctest.Wait()
			}
			behind.look(nil)
			behind.look(&hv.Job{Current: at.mib << 20})
			synctest.Wait()
			if begun != at.begun {
				t.Fatalf("%d flushes have begun when the job has written %d MiB, want %d", begun, at.mib, at.begun)
			}
		}
		close(goOn)
	})
}
