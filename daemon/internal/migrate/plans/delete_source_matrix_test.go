// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
)

// deletion is a world with a volume that has left src, which is to be deleted.
type deletion struct{ *phase }

// Op implements optest.World.
func (d deletion) Op() op.Op {
	in, err := json.Marshal(place.ReleasedInput{Spec: d.spec, Seal: d.seal, EndedAt: time.Now().Add(time.Hour)})
	if err != nil {
		panic(err)
	}
	o := d.phase.Op()
	o.Group, o.Keys, o.Input = "", []string{"volume/" + d.spec.VolumeID}, in
	return o
}

func TestMatrixDeleteSource(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		t.Helper()
		p := &phase{World: migratetest.NewWorld(t, hv.StateStopped), kind: place.KindDeleteSource, spec: testSpec(move.MethodOverlay)}
		ctx := context.Background()
		fingerprint, err := p.Images.Fingerprint(ctx, srcPath)
		must(t, err)
		p.spec.SrcPrint = fingerprint
		seal, err := p.Images.Stamp(ctx, srcPath)
		must(t, err)
		p.seal = &seal
		_, err = p.CreateVolume(ctx, "new", p.spec.Dst.Name, "raw", testSize, nil)
		must(t, err)
		must(t, p.Copy(srcPath, dstPath))
		must(t, p.SetConfigChain(ctx, testInstance, "vda", []hv.Image{p.spec.DstImage()}))
		p.Registry.Vol.Location = p.spec.Dst
		p.done = func(p *phase) error {
			if p.Exists(srcPath) || !p.Exists(dstPath) {
				return errors.New("src is there, or dst is not")
			}
			return nil
		}
		p.undone = func(p *phase) error {
			if !p.Exists(dstPath) {
				return errors.New("dst is gone")
			}
			return nil
		}
		return deletion{p}
	}})
}
