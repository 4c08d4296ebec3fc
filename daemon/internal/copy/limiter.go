// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limiter caps the bytes per second of the copies that share it. Waiting copies notice a changed
// cap at once. A nil Limiter caps nothing.
type Limiter struct {
	mu      sync.Mutex
	bucket  *rate.Limiter
	changed chan struct{}
}

// NewLimiter returns a limiter with this cap; 0 means no cap.
func NewLimiter(bytesPerSecond int64) *Limiter {
	l := &Limiter{changed: make(chan struct{})}
	l.SetBytesPerSecond(bytesPerSecond)
	return l
}

// SetBytesPerSecond changes the cap; 0 removes it.
func (l *Limiter) SetBytesPerSecond(bytesPerSecond int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bucket = nil
	if bytesPerSecond > 0 {
		l.bucket = rate.NewLimiter(rate.Limit(bytesPerSecond), chunkBytes)
		// The bucket starts empty: a change permits no burst.
		l.bucket.AllowN(time.Now(), chunkBytes)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// wait returns when n bytes, at most a chunk, may move, or the error of ctx.
func (l *Limiter) wait(ctx context.Context, n int64) error {
	if l == nil {
		return ctx.Err()
	}
	for {
		l.mu.Lock()
		bucket, changed := l.bucket, l.changed
		l.mu.Unlock()
		if bucket == nil {
			return ctx.Err()
		}
		turn := bucket.ReserveN(time.Now(), int(n))
		again, err := l.sleep(ctx, turn.Delay(), changed)
		if err == nil && !again {
			return nil
		}
		turn.Cancel()
		if err != nil {
			return err
		}
	}
}

func (l *Limiter) waitAll(ctx context.Context, n int64) error {
	for n > 0 {
		part := min(n, chunkBytes)
		if err := l.wait(ctx, part); err != nil {
			return err
		}
		n -= part
	}
	return ctx.Err()
}

func (l *Limiter) bytesPerSecond() int64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bucket == nil {
		return 0
	}
	return int64(l.bucket.Limit())
}

// sleep waits for d. It ends earlier if the cap changes (again is true), or with the error of ctx.
func (*Limiter) sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) (again bool, err error) {
	if d <= 0 {
		return false, ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-changed:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
