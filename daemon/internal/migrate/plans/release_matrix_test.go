// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
)

// The registry has ended the migration. No job remains, no image is deleted and no definition is
// changed.
func TestReleaseMatrix(t *testing.T) {
	for _, c := range []struct {
		method string
		state  hv.State
	}{
		{move.MethodOverlay, hv.StateRunning},
		{move.MethodOverlay, hv.StateStopped},
		{move.MethodMirror, hv.StateRunning},
		{move.MethodMirror, hv.StatePaused},
	} {
		t.Run(c.method+" "+string(c.state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				var p *phase
				if c.method == move.MethodMirror {
					p = mirroring(t, c.state)
				} else if p = started(t, c.state, c.method); c.state.Active() {
					p.fold(t)
				}
				p.kind = release
				p.done = func(p *phase) error {
					var err error
					if !p.Exists(dstPath) || !p.Exists(srcPath) {
						err = errors.New("an image is gone")
					}
					if c.state.Active() && p.handedOver != c.state {
						err = errors.Join(err, fmt.Errorf("the guest was handed over %s", p.handedOver))
					}
					if c.method == move.MethodMirror {
						return errors.Join(err, p.Settled(srcPath))
					}
					return errors.Join(err, onOverlayStill(p))
				}
				p.undone = func(*phase) error { return nil }
				return p
			}})
		})
	}
}

// The registry has ended the migration, and the instance still has src: the overlay is folded into
// it, and dst is not touched.
func TestRollbackMatrix(t *testing.T) {
	for _, c := range []struct {
		kind    string
		state   hv.State
		folding bool
	}{
		{rollbackLive, hv.StateRunning, false},
		{rollbackLive, hv.StateRunning, true},
		{rollbackLive, hv.StatePaused, false},
		{rollbackCold, hv.StateStopped, false},
	} {
		t.Run(fmt.Sprintf("%s folding=%t", c.state, c.folding), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, c.state, move.MethodOverlay)
				if c.folding {
					p.fold(t)
				}
				p.Registry.Abandon(testMigration)
				p.kind = c.kind
				p.done = func(p *phase) error {
					if !p.Exists(dstPath) {
						return errors.New("dst is gone")
					}
					return p.Settled(srcPath)
				}
				p.undone = func(p *phase) error { return errors.Join(p.jobLeft(), onOverlayStill(p)) }
				return p
			}})
		})
	}
}

// stopWhenAsked simulates the person who gets the guest of a migration that the registry has ended:
// without a job, and not paused by the op.
func stopWhenAsked(p *phase, handOver *op.Step) {
	do := handOver.Do
	handOver.Do = func(ctx context.Context, r *op.Run) error {
		if dom, err := p.Fake.Domain(ctx, testInstance); err != nil || !dom.State.Active() {
			return do(ctx, r)
		} else if p.handedOver = dom.State; dom.LiveDisk("vda").Mirror != nil {
			p.handedOver = "with a job"
		}
		return errors.Join(p.Stop(testInstance), do(ctx, r))
	}
}
