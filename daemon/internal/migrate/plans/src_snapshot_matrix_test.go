// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op/optest"
)

// TestCompleteMatrix and TestCancelMatrix have the other ends.
func TestMatrixOfEndsWithoutTheRegistryOrTheOverlayThatLeaveNoSnapshotOfAnRBDImage(t *testing.T) {
	onOverlay := func(p *phase) error { return onOverlayStill(p) }
	onSrc := func(p *phase) error { return p.SettledOn(p.spec.SrcImage()) }
	onSrcWithOverlay := func(p *phase) error {
		return errors.Join(p.Images.Remove(context.Background(), overlayPath), onSrc(p))
	}
	for _, c := range []struct {
		kind    string
		state   hv.State
		prepare func(*testing.T, *phase)
		done    func(*phase) error
	}{
		{release, hv.StateRunning, func(t *testing.T, p *phase) { t.Helper(); p.fold(t) }, onOverlay},
		{release, hv.StateStopped, nil, onOverlay},
		{rollbackLive, hv.StateRunning, func(_ *testing.T, p *phase) { p.Registry.Abandon(testMigration) }, onSrc},
		{rollbackCold, hv.StateStopped, func(_ *testing.T, p *phase) { p.Registry.Abandon(testMigration) }, onSrc},
		{cancelCommitted, hv.StateRunning, func(t *testing.T, p *phase) {
			t.Helper()
			must(t, p.Stop(testInstance))
			must(t, p.Start(testInstance))
			p.CommitByUser(t)
		}, onSrcWithOverlay},
	} {
		t.Run(fmt.Sprintf("%s %s", c.kind, c.state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := startedOn(t, migratetest.RBDWorld, c.state, move.MethodOverlay)
				if c.prepare != nil {
					c.prepare(t, p)
				}
				p.kind = c.kind
				p.done = func(p *phase) error {
					err := c.done(p)
					if left := p.SnapshotsOf(p.spec.Src.Path); len(left) > 0 {
						err = errors.Join(err, fmt.Errorf("src has the snapshots %v", left))
					}
					return err
				}
				p.undone = func(*phase) error { return nil } // as for other images
				return p
			}})
		})
	}
}
