// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/volferry/volferry/test/crash"
)

// seedOf is the seed of this run, which is printed. It repeats the choices of the run; when what is
// chosen happens is up to the machine.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	_, seed := crash.Chance(t)
	t.Logf("%s=%d", crash.SeedEnv, seed)
	return seed
}

// random is the n-th source of choices of a seed.
func random(seed, n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }

// between is a time from low to high.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// trouble is what happens to a registry while it works.
type trouble struct {
	every, until time.Duration // bounds of the peace between two blows
	pauses       bool          // it stands still as often as it dies
	kills, stops int
}

// haunt kills the registry and starts it again, or has it stand still for a
// while, until ctx ends. It runs then.
func (b *trouble) haunt(ctx context.Context, c *cluster, r *rand.Rand) error {
	for {
		if err := pause(ctx, between(r, b.every, b.until)); err != nil {
			return nil //nolint:nilerr // that is the end
		}
		var err error
		if b.pauses && r.IntN(2) == 0 {
			err = b.freeze(ctx, c, between(r, 20*time.Millisecond, 2*patience))
		} else {
			err = b.killAndStart(ctx, c)
		}
		if err != nil {
			return err
		}
	}
}

func (b *trouble) killAndStart(ctx context.Context, c *cluster) error {
	b.kills++
	c.Kill()
	ctx = context.WithoutCancel(ctx)
	if err := c.Start(ctx); err != nil {
		return err
	}
	return c.introduce(ctx)
}

func (b *trouble) freeze(ctx context.Context, c *cluster, d time.Duration) error {
	b.stops++
	err := c.Signal(syscall.SIGSTOP)
	_ = pause(ctx, d) // the end of ctx ends it too
	return errors.Join(err, c.Signal(syscall.SIGCONT))
}
