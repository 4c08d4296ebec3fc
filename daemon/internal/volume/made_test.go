// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

// madePath is the path of the image that the pool makes for inFiles.
const madePath = "/files/db.raw"

var inFiles = api.VolumeCreate{Name: "db", Pool: "files", SizeBytes: testSize}

func (w *world) born(t *testing.T) int64 {
	t.Helper()
	info, err := w.Info(madePath)
	must(t, err)
	return info.Born
}

// dieInCreate begins a creation, and returns when the pool has made the image but the journal lacks
// its fingerprint: the daemon dies there. Call bury at the end of the test.
func (w *world) dieInCreate(t *testing.T, opID string, in api.VolumeCreate) (bury func()) {
	t.Helper()
	reached, released, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.Inject(hvtest.Fault{Call: "CreateVolume", After: true, Do: func() {
		close(reached)
		<-released
		runtime.Goexit()
	}})
	dying := w.start(t)
	go func() {
		defer close(ended)
		_, _ = dying.Create(context.Background(), opID, in)
	}()
	<-reached
	old := w.runner
	return func() {
		close(released)
		old.Stop()
		<-ended
	}
}

// TestAnImageThatNobodyCanTellFromAnotherIsLeft: the daemon dies when the pool has made the image
// but the journal lacks its fingerprint.
func TestAnImageThatNobodyCanTellFromAnotherIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, id := newWorld(t), uuid.NewString()
		defer w.dieInCreate(t, id, inFiles)()
		born := w.born(t)
		g := w.start(t)
		must(t, w.runner.Resume(t.Context()))
		_, err := g.Create(t.Context(), id, inFiles)
		wantCode(t, err, api.CodeConflict)
		if !w.Exists(madePath) || w.born(t) != born {
			t.Error("what may be somebody else's is gone")
		}
		if len(w.registry.volumes) > 0 {
			t.Errorf("the registry has %v", w.registry.volumes)
		}
	})
}

// TestAnImageThatIsReplacedAsSoonAsItIsMadeIsNotTaken, and not deleted.
func TestAnImageThatIsReplacedAsSoonAsItIsMadeIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, notes, born := newWorld(t), 0, int64(0)
		w.journal.AfterAppend(func(r op.Record) {
			if r.Step != stepNameCreateImage || r.Kind != op.EventNoted {
				return
			}
			if notes++; notes == 2 {
				must(t, w.Remove(madePath))
				must(t, w.CreateImage(madePath, hvtest.Raw, testSize))
				born = w.born(t)
			}
		})
		_, err := w.start(t).Create(t.Context(), uuid.NewString(), inFiles)
		wantCode(t, err, api.CodeConflict)
		if !w.Exists(madePath) || w.born(t) != born {
			t.Error("the image of somebody else is gone")
		}
	})
}

// TestACreationIsUndoneWithoutTheImageOfSomebodyElse, which has replaced the volume's image.
func TestACreationIsUndoneWithoutTheImageOfSomebodyElse(t *testing.T) {
	for name, replaced := range map[string]bool{"its own": false, "somebody else's": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			in := &input{Volume: api.VolumeRegister{ID: matrixVolume, Name: "db", Location: inPoolOfFiles()}}
			w.registry.volumes[matrixVolume] = api.Volume{ID: matrixVolume, Name: "db", Status: api.VolumeCreating}
			must(t, w.CreateImage(madePath, hvtest.Raw, testSize))
			fingerprint, err := w.images.Fingerprint(t.Context(), madePath)
			must(t, err)
			if replaced {
				must(t, w.Remove(madePath))
				must(t, w.CreateImage(madePath, hvtest.Raw, testSize))
			}
			must(t, w.newManager(optest.NewRunner(w.journal)).env.removeMade(t.Context(), "", in, claimNote{Ours: true, Print: fingerprint}))
			if w.Exists(madePath) != replaced {
				t.Errorf("an image is there: %t, want %t", !replaced, replaced)
			}
		})
	}
}
