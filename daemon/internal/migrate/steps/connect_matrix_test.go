// SPDX-License-Identifier: Apache-2.0

package steps_test

import (
	"context"
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op/optest"
)

// targetPath is that of a volume of a target: it is there while it is connected.
const targetPath = "/dev/vf-volume"

// targetSpec is that of a move to it.
func targetSpec() steps.Spec {
	s := testSpec(steps.MethodOverlay)
	s.Dst = api.Location{Path: targetPath, Format: api.FormatRaw, SizeBytes: testSize}
	s.ConnectDst, s.DstBlock = true, true
	return s
}

// isConnected compares whether dst is connected.
func (p *phase) isConnected(want bool) error {
	if p.Connected(targetPath) != want {
		return errors.New(map[bool]string{true: "dst is not connected", false: "dst is left connected"}[want])
	}
	return nil
}

// TestStartToATargetMatrix: dst is connected when src is frozen, and an undo disconnects it.
func TestStartToATargetMatrix(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				w := migratetest.NewWorld(t, state)
				must(t, w.AddTarget(targetPath, testSize))
				return &phase{
					World: w, kind: steps.KindStart, spec: targetSpec(),
					done: func(p *phase) error {
						return errors.Join(p.row(api.MigrationStarted), onOverlayStill(p), p.isConnected(true))
					},
					undone: func(p *phase) error { return errors.Join(notBegun(p), p.isConnected(false)) },
				}
			}})
		})
	}
}

// TestCancelOfAMoveToATargetMatrix: it is disconnected once nothing names it any more.
func TestCancelOfAMoveToATargetMatrix(t *testing.T) {
	for kind, state := range map[string]hv.State{steps.KindCancelLive: hv.StateRunning, steps.KindCancelCold: hv.StateStopped} {
		t.Run(kind, func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, state, steps.MethodOverlay)
				must(t, p.AddTarget(targetPath, testSize))
				must(t, p.Fake.ConnectDevice(context.Background(), targetPath))
				must(t, p.Copy(srcPath, targetPath))
				p.kind, p.spec = kind, targetSpec()
				p.done = func(p *phase) error {
					return errors.Join(p.Settled(srcPath), p.row(api.MigrationCancelled), p.isConnected(false))
				}
				p.undone = func(p *phase) error {
					return errors.Join(p.jobLeft(), onOverlayStill(p), p.isConnected(true))
				}
				return p
			}})
		})
	}
}
