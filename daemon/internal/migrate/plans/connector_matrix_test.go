// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

// targetPath is the path of a volume of a target, which exists while it is connected.
const targetPath = "/dev/pts/vf-volume"

// addTarget adds a target, and the programs of its connector, to a host.
func addTarget(t *testing.T, w *migratetest.World) {
	t.Helper()
	w.AddPool(hv.PoolInfo{Name: "target", Type: hv.ConnectorPool, Path: "/dev/pts", Active: true})
	w.Connectors = &hosttest.Connectors{Fake: w.Fake, Images: w.Images}
	must(t, w.AddTarget(targetPath, testSize))
}

func targetSpec(w *migratetest.World) move.Spec {
	s := w.Spec(move.MethodOverlay)
	s.Dst = api.Location{Path: targetPath, Format: api.FormatRaw, SizeBytes: testSize}
	s.ConnectDst, s.DstBlock = true, true
	return s
}

func (p *phase) isConnected(want bool) error {
	if p.Connected(targetPath) != want {
		return errors.New(map[bool]string{true: "dst is not connected", false: "dst is left connected"}[want])
	}
	return nil
}

// dst is connected when src is frozen, and an undo disconnects it.
func TestStartToATargetMatrix(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				w := migratetest.NewWorld(t, state)
				addTarget(t, w)
				return &phase{
					World: w, kind: startOverlay, spec: targetSpec(w),
					done: func(p *phase) error {
						return errors.Join(p.row(api.MigrationStarted), onOverlayStill(p), p.isConnected(true))
					},
					undone: func(p *phase) error { return errors.Join(notBegun(p), p.isConnected(false)) },
				}
			}})
		})
	}
}

// dst is disconnected once no definition names it.
func TestCancelOfAMoveToATargetMatrix(t *testing.T) {
	for kind, state := range map[string]hv.State{cancelLive: hv.StateRunning, cancelCold: hv.StateStopped} {
		t.Run(kind, func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, state, move.MethodOverlay)
				addTarget(t, p.World)
				must(t, p.Fake.ConnectDevice(context.Background(), targetPath))
				must(t, p.Copy(srcPath, targetPath))
				p.kind, p.spec = kind, targetSpec(p.World)
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

// arraySpec returns the spec of a move into a pool with a connector that makes volumes.
func arraySpec(w *migratetest.World) move.Spec {
	s := w.Spec(move.MethodOverlay)
	s.Dst = api.Location{Pool: "array", Name: "vol-6f0f7f6e", Path: "/dev/array/vol-6f0f7f6e", Format: api.FormatRaw, SizeBytes: testSize}
	s.DstBlock = true
	return s
}

// addArray adds that pool, and the programs of its connector, to a host.
func addArray(w *migratetest.World) {
	w.AddPool(hv.PoolInfo{Name: "array", Type: hv.ConnectorPool, Path: "/dev/array", Active: true, CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
	w.Connectors = &hosttest.Connectors{Fake: w.Fake, Images: w.Images}
}

func (p *phase) isMade(want bool) error {
	if p.Exists(p.spec.Dst.Path) != want {
		return errors.New(map[bool]string{true: "dst is not there", false: "dst is left"}[want])
	}
	return nil
}

// The connector has made dst when src is frozen, and an undo deletes it.
func TestStartIntoAnArrayMatrix(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := migratetest.NewWorld(t, hv.StateRunning)
		addArray(w)
		return &phase{
			World: w, kind: startOverlay, spec: arraySpec(w),
			done: func(p *phase) error {
				return errors.Join(p.row(api.MigrationStarted), onOverlayStill(p), p.isMade(true))
			},
			undone: func(p *phase) error { return errors.Join(notBegun(p), p.isMade(false)) },
		}
	}})
}

// dst is deleted once no definition names it.
func TestCancelOfAMoveIntoAnArrayMatrix(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		p := started(t, hv.StateRunning, move.MethodOverlay)
		addArray(p.World)
		p.kind, p.spec = cancelLive, arraySpec(p.World)
		_, err := p.CreateVolume(context.Background(), "array", p.spec.Dst.Name, "raw", testSize, nil)
		must(t, err)
		must(t, p.Copy(srcPath, p.spec.Dst.Path))
		p.done = func(p *phase) error {
			return errors.Join(p.Settled(srcPath), p.row(api.MigrationCancelled), p.isMade(false))
		}
		p.undone = func(p *phase) error {
			return errors.Join(p.jobLeft(), onOverlayStill(p), p.isMade(true))
		}
		return p
	}})
}
