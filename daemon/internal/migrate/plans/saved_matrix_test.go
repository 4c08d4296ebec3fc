// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"errors"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

func TestMatrixOfACopyWithAllGuestsPaused(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := migratetest.NewWorld(t, hv.StateStopped)
		w.Registry.SavedRow(api.MigrationCopying)
		return &phase{
			World: w, kind: move.KindCopySaved, spec: w.SavedSpec(),
			done:   func(p *phase) error { return p.CopiedWhole() },
			undone: func(p *phase) error { return p.NothingMade() },
		}
	}})
}

func TestMatrixOfADroppedCopy(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := migratetest.NewWorld(t, hv.StateStopped)
		_, err := w.CreateVolume(context.Background(), "new", testSpec(move.MethodSave).Dst.Name, "raw", testSize, nil)
		must(t, err)
		w.Registry.SavedRow(api.MigrationCancelling)
		return &phase{
			World: w, kind: move.KindDropDst, spec: savedSpec(),
			done: func(p *phase) error { return p.NothingMade() },
			undone: func(p *phase) error {
				if !p.Exists(srcPath) {
					return errors.New("src is gone")
				}
				return nil
			},
		}
	}})
}

func TestMatrixOfADeletedSource(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := migratetest.NewWorld(t, hv.StateStopped)
		_, err := w.CreateVolume(context.Background(), "new", testSpec(move.MethodSave).Dst.Name, "raw", testSize, nil)
		must(t, err)
		must(t, w.Copy(srcPath, dstPath))
		spec := w.SavedSpec()
		must(t, w.SetConfigChain(context.Background(), testInstance, "vda", spec.DstChain()))
		w.Registry.Flip()
		spec.DeleteSource = true
		seal, err := w.Images.Stamp(context.Background(), srcPath)
		must(t, err)
		return &phase{
			World: w, kind: move.KindDropSrc, spec: spec, seal: &seal,
			done: func(p *phase) error {
				if p.Exists(srcPath) {
					return errors.New("src is left")
				}
				return nil
			},
			undone: func(p *phase) error {
				if !p.Exists(dstPath) {
					return errors.New("dst is gone")
				}
				return nil
			},
		}
	}})
}
