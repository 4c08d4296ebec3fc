// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/internal/api"
)

// The registry has freed the place of src before.
func TestOnlyTheSourceThatWasMovedIsDeleted(t *testing.T) {
	remake := func(t *testing.T, w *migratetest.World) {
		must(t, w.Undefine(testInstance))
		must(t, w.Remove(srcPath))
		must(t, w.CreateImage(srcPath, hvtest.Raw, testSize))
	}
	for name, c := range map[string]struct {
		happens func(t *testing.T, w *migratetest.World)
		pool    string
		deleted bool
	}{
		"nothing happened": {happens: func(t *testing.T, w *migratetest.World) { must(t, w.Undefine(testInstance)) }, deleted: true},
		"it is gone already": {happens: func(t *testing.T, w *migratetest.World) {
			must(t, w.Undefine(testInstance))
			must(t, w.Remove(srcPath))
		}, deleted: true},
		"another image is there":     {happens: remake},
		"another one is in the pool": {happens: remake, pool: "old"},
		"the pool is elsewhere":      {happens: func(t *testing.T, w *migratetest.World) { must(t, w.Undefine(testInstance)) }, pool: "moved"},
		"it is another volume": {happens: func(t *testing.T, w *migratetest.World) {
			must(t, w.Undefine(testInstance))
			w.Registry.Others = []api.Volume{migratetest.VolumeAt(srcPath)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := migratetest.NewWorld(t, hv.StateStopped)
			w.AddPool(hv.PoolInfo{Name: "old", Type: "dir", Path: "/old", Active: true})
			w.AddPool(hv.PoolInfo{Name: "moved", Type: "dir", Path: "/moved", Active: true})
			must(t, w.CreateImage("/moved/vol.raw", hvtest.Raw, testSize))
			seal, err := w.Images.Stamp(t.Context(), srcPath)
			must(t, err)
			m := plans.NewEnv(w.Ports(), migratetest.FakeHistory{Seal: &seal}, nil, func(string) {}, slog.New(slog.DiscardHandler))
			s := testSpec(move.MethodOffline)
			if s.Src.Pool = c.pool; c.pool != "" {
				s.Src.Name = "vol.raw"
			}
			src, err := w.Images.Fingerprint(t.Context(), srcPath)
			must(t, err)
			s.SrcPrint = src
			w.Registry.Vol.Location = s.Dst
			c.happens(t, w)
			_, err = m.Place.DeleteSource(t.Context(), &s, "")
			must(t, err)
			if left := w.Exists(srcPath); left == c.deleted {
				t.Errorf("the image at src is there: %t, want %t", left, !c.deleted)
			}
			if !w.Exists("/moved/vol.raw") {
				t.Error("what the pool has under that name is gone")
			}
		})
	}
}

func TestASourceWhosePoolIsNotDefinedAnyMoreIsRefused(t *testing.T) {
	w := migratetest.NewWorld(t, hv.StateStopped)
	m := plans.NewEnv(w.Ports(), migratetest.FakeHistory{}, nil, func(string) {}, slog.New(slog.DiscardHandler))
	in := place.ReleasedInput{Spec: testSpec(move.MethodOffline)}
	fingerprint, err := w.Images.Fingerprint(t.Context(), srcPath)
	must(t, err)
	in.Spec.SrcPrint, in.Spec.Src.Pool = fingerprint, "gone"
	if err := m.Place.CheckReleased(t.Context(), &in); api.CodeOf(err) != api.CodeStateForbidden || !strings.Contains(err.Error(), "there is no pool gone on this host any more; define it again") {
		t.Errorf("%v, want state_forbidden that names the pool", err)
	}
}
