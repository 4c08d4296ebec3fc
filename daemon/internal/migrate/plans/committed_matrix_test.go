// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

func TestCancelOfACommittedOverlayMatrix(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StatePaused} {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, hv.StateRunning, move.MethodOverlay)
				must(t, p.Stop(testInstance)) // no journal has the process that start has switched
				must(t, p.Start(testInstance))
				p.GuestWrites()
				p.CommitByUser(t)
				p.GuestWrites()
				if state == hv.StatePaused {
					must(t, p.SuspendByUser(testInstance))
				}
				p.kind = cancelCommitted
				onSrc := func(p *phase) error {
					if !p.Exists(overlayPath) {
						return errors.New("the overlay was not kept")
					}
					return p.Images.Remove(context.Background(), overlayPath)
				}
				p.done = func(p *phase) error {
					err := errors.Join(onSrc(p), p.Settled(srcPath), p.row(api.MigrationCancelled))
					if p.Exists(dstPath) {
						err = errors.Join(err, fmt.Errorf("dst is left"))
					}
					return err
				}
				p.undone = func(p *phase) error { return errors.Join(onSrc(p), p.Settled(srcPath)) }
				return p
			}})
		})
	}
}
