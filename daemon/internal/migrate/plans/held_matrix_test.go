// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

// The guests run in a QEMU that loses writes while a job begins, and write at each look.
func TestHeldMatrix(t *testing.T) {
	file, clone := migratetest.NewWorld, migratetest.KeepBaseWorld
	for _, c := range []struct {
		world        func(*testing.T, hv.State) *migratetest.World
		kind, method string
		state        hv.State
		folding      bool // a job remains that was not begun with the guest suspended
		done         func(*phase) error
	}{
		{file, completeLiveHeld, move.MethodOverlay, hv.StateRunning, false, movedToDst},
		{file, completeLiveHeld, move.MethodOverlay, hv.StateRunning, true, movedToDst},
		{file, completeLiveHeld, move.MethodOverlay, hv.StatePaused, false, movedToDst},
		{clone, completeBackgroundHeld, move.MethodOverlay, hv.StateRunning, false, movedToDst},
		{clone, completeBackgroundHeld, move.MethodOverlay, hv.StatePaused, false, movedToDst},
		{file, cancelLiveHeld, move.MethodOverlay, hv.StateRunning, false, backOnSrc},
		{file, cancelLiveHeld, move.MethodOverlay, hv.StateRunning, true, backOnSrc},
		{file, cancelLiveHeld, move.MethodOverlay, hv.StatePaused, false, backOnSrc},
		{file, rollbackLiveHeld, move.MethodOverlay, hv.StateRunning, false, takenBack},
		{file, beginMirror, move.MethodMirror, hv.StateRunning, false, mirrorBegun},
		{file, beginMirror, move.MethodMirror, hv.StatePaused, false, mirrorBegun},
	} {
		t.Run(fmt.Sprintf("%s %s folding=%t", c.kind, c.state, c.folding), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := startedOn(t, migratetest.WithLosingQEMU(c.world), c.state, c.method)
				if c.folding {
					p.fold(t)
				}
				if c.kind == rollbackLiveHeld {
					p.Registry.Abandon(testMigration)
				}
				p.kind = c.kind
				asBefore := func() error { return p.isStill(c.state) }
				p.done = func(p *phase) error { return errors.Join(asBefore(), c.done(p)) }
				p.undone = func(p *phase) error {
					if c.method == move.MethodMirror {
						return errors.Join(asBefore(), p.jobLeft(), onSrcStill(p)) // the job may remain, for the cancel
					}
					return errors.Join(asBefore(), p.jobLeft(), onOverlayStill(p))
				}
				return p
			}})
		})
	}
}

// isStill checks that the guest runs if it ran, and is paused if a person had paused it.
func (p *phase) isStill(want hv.State) error {
	dom, err := p.Fake.Domain(context.Background(), testInstance)
	if err == nil && dom.State != want {
		err = fmt.Errorf("the guest is %s, and was %s", dom.State, want)
	}
	return err
}

func movedToDst(p *phase) error {
	return errors.Join(p.SettledOn(p.spec.DstImage()), p.row(api.MigrationCompleted))
}

func backOnSrc(p *phase) error {
	return errors.Join(p.SettledOn(p.Src), p.row(api.MigrationCancelled))
}

func takenBack(p *phase) error { return p.Settled(srcPath) }

// mirrorBegun checks that the job exists, and dst gets all writes of the guest.
func mirrorBegun(p *phase) error {
	p.Step(testBlocks + 1)
	err := p.mirrored()
	must := p.BreakJob(testInstance, "vda")
	r := &hosttest.Recorder{}
	p.AssertNoWriteLost(r)
	p.AssertClean(r)
	return errors.Join(append(r.Problems, err, must)...)
}
