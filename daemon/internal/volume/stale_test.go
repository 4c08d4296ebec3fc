// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// replace plays another host of a shared pool: it deletes a fenced host's volume by force, and
// makes another in its place.
func (w *world) replace(t *testing.T, id string) (next api.Volume) {
	t.Helper()
	w.registry.Lock()
	delete(w.registry.volumes, id)
	next = w.addVolume("db", inPoolOfFiles())
	w.registry.Unlock()
	if !w.Exists("/files/db.raw") {
		must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
	}
	return next
}

// hang makes every read of a pool fail from the nth on.
func (w *world) hang(nth int) {
	for n := range 1000 {
		w.Inject(hvtest.Fault{Call: "LookupVolume", Nth: nth + n, Err: hv.ErrUnavailable})
	}
}

func TestADeletionThatWasOvertakenLeavesTheNextVolumeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
		vol := w.addVolume("db", inPoolOfFiles())
		w.hang(2)
		if err := deleted(g.Delete(t.Context(), testOp, vol.ID, false)); err == nil {
			t.Fatal("it was deleted while libvirt was away")
		}
		if now := w.registry.volumes[vol.ID]; now.Status != api.VolumeDeleting {
			t.Fatalf("the volume is %s", now.Status)
		}
		next := w.replace(t, vol.ID)
		w.ClearFaults()
		st, err := w.runner.Wait(t.Context(), testOp)
		must(t, err)
		if !st.State.Final() || !w.Exists("/files/db.raw") || w.registry.volumes[next.ID].Status != api.VolumeAvailable {
			t.Errorf("the deletion is %s, the image of the next volume is there: %t", st.State, w.Exists("/files/db.raw"))
		}
	})
}

func TestACreationThatWasOvertakenLeavesTheNextVolumeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		w.hang(2) // the check whether the image was made
		_, err := g.Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize, Pool: "files", Format: api.FormatRaw})
		if err == nil || !w.Exists("/files/db.raw") {
			t.Fatalf("error %v, image there: %t", err, w.Exists("/files/db.raw"))
		}
		var id string
		for id = range w.registry.volumes {
			if v := w.registry.volumes[id]; v.Status != api.VolumeCreating {
				t.Fatalf("the volume is %s", v.Status)
			}
		}
		next := w.replace(t, id)
		w.ClearFaults()
		st, err := w.runner.Wait(t.Context(), testOp)
		must(t, err)
		if st.State != op.StateUndone || !w.Exists("/files/db.raw") || w.registry.volumes[next.ID].Status != api.VolumeAvailable {
			t.Errorf("the creation is %s, the image of the next volume is there: %t", st.State, w.Exists("/files/db.raw"))
		}
	})
}
