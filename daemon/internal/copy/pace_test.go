// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

func TestBandwidthChangedWhileRunningTakesEffectAtOnce(t *testing.T) {
	src, dst := raw(t, "src", 32*miB, [2]int64{0, 32 * miB}), raw(t, "dst", 32*miB)
	limit := copy.NewLimiter(1) // a month
	var phases atomic.Int64
	go func() { // lifted only when all workers wait
		for phases.Load() == 0 {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
		<-time.After(200 * time.Millisecond)
		limit.SetBytesPerSecond(64 * miB)
	}()
	started := time.Now()
	mustCopy(t, copy.Spec{Src: src, Dst: dst, Limit: limit, Progress: func(copy.Progress) { phases.Add(1) }})
	if took := time.Since(started); took < 500*time.Millisecond || took > 10*time.Second {
		t.Errorf("32 MiB at 64 MiB/s took %v", took)
	}
	assertEqual(t, src, dst)
}

func TestBandwidthOfQemuImgIsCappedAndCanBeChanged(t *testing.T) {
	src, dst := raw(t, "src", 96*miB, [2]int64{0, 96 * miB}), qcow2(t, "dst", 96*miB)
	limit := copy.NewLimiter(64 * miB)
	started := time.Now()
	lifted := time.AfterFunc(700*time.Millisecond, func() { limit.SetBytesPerSecond(0) })
	defer lifted.Stop()
	mustCopy(t, copy.Spec{Src: src, Dst: dst, Limit: limit})
	if took := time.Since(started); took < 600*time.Millisecond {
		t.Errorf("96 MiB at 64 MiB/s took %v", took)
	} else {
		t.Logf("took %v", took)
	}
	limit.SetBytesPerSecond(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
	if _, err := copy.Copy(ctx, copy.Spec{Src: dst, Dst: raw(t, "back", 96*miB), Limit: limit}); err == nil {
		t.Error("a copy at one byte per second ended")
	}
}

func TestRawAndQcow2BothWays(t *testing.T) {
	src := raw(t, "src", 24*miB, [2]int64{0, 3 * miB}, [2]int64{20*miB + 512, 512})
	first, second, back := qcow2(t, "first", 24*miB), qcow2(t, "second", 24*miB), raw(t, "back", 24*miB, [2]int64{0, 24 * miB})
	for _, step := range []copy.Spec{{Src: src, Dst: first}, {Src: first, Dst: second, DstIsZero: true}, {Src: second, Dst: back}} {
		step.Verify = true
		var last copy.Progress
		step.Progress = func(p copy.Progress) { last = p }
		if result := mustCopy(t, step); !result.Verified {
			t.Errorf("result %+v", result)
		}
		if last.Phase != copy.PhaseVerify || last.BytesDone != 24*miB {
			t.Errorf("last progress %+v", last)
		}
	}
	assertEqual(t, src, back)
	if n, err := qemuimg.AllocatedBytes(second.Path); err != nil || n > 8*miB {
		t.Errorf("%d bytes allocated, %v", n, err)
	}
}
