// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// aliases makes the image of a volume called free, and returns its path with other
// names of the image.
func (w *world) aliases(t *testing.T) (path string, names []string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "free.raw")
	names = []string{path, filepath.Join(dir, "hard.raw"), filepath.Join(dir, "soft.raw"), filepath.Join(dir, "alias", "free.raw")}
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Link(path, names[1]))
	must(t, os.Symlink(path, names[2]))
	must(t, os.Symlink(dir, filepath.Join(dir, "alias")))
	for _, name := range names {
		must(t, w.CreateImage(name, hvtest.Raw, testSize))
	}
	return path, names
}

func volumeAt(path string) api.Volume {
	return api.Volume{ID: uuid.NewString(), Name: "free", Status: api.VolumeAvailable, Host: testHost, Location: api.Location{Path: path, Format: api.FormatRaw, SizeBytes: testSize}}
}

func TestADestinationThatIsAVolumeByAnotherNameIsRefused(t *testing.T) {
	for n, name := range []string{"its own path", "a hard link", "a symbolic link", "a linked directory"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				path, names := d.world.aliases(t)
				d.world.registry.others = []api.Volume{volumeAt(path)}
				_, err := d.manager().Start(context.Background(), StartRequest{
					OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPath: names[n]}, Composite: true,
				})
				if api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), "is volume free already") {
					t.Errorf("got %v, want dst_in_use by volume free", err)
				}
				d.stayed()
			})
		})
	}
}

// TestADestinationThatIsTakenBehindTheRegistryIsNotWritten: what was free when the move
// was asked for is another volume by another name once dst is reserved.
func TestADestinationThatIsTakenBehindTheRegistryIsNotWritten(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		r := d.world.registry
		path, names := d.world.aliases(t)
		r.onCall = func(bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.rows) > 0 && len(r.others) == 0 {
				r.others = []api.Volume{volumeAt(path)}
			}
		}
		mig := d.until(d.migrateTo(api.MigrationTarget{ToPath: names[1]}), api.MigrationError)
		if mig.Error == nil || mig.Error.Code != api.CodeDstInUse {
			t.Errorf("it ended with %v, want dst_in_use", mig.Error)
		}
		if info, err := d.world.Info(names[1]); err != nil || info.Allocated > 0 {
			t.Errorf("%d blocks of the other volume were written (%v)", info.Allocated, err)
		}
		d.stayed()
	})
}

// TestOnlyTheSourceThatWasMovedIsDeleted: the registry has freed its place before.
func TestOnlyTheSourceThatWasMovedIsDeleted(t *testing.T) {
	remake := func(t *testing.T, w *world) {
		must(t, w.Undefine(testInstance))
		must(t, w.Remove(srcPath))
		must(t, w.CreateImage(srcPath, hvtest.Raw, testSize))
	}
	for name, c := range map[string]struct {
		happens func(t *testing.T, w *world)
		pool    string
		deleted bool
	}{
		"nothing happened":           {happens: func(t *testing.T, w *world) { must(t, w.Undefine(testInstance)) }, deleted: true},
		"it is gone already":         {happens: func(t *testing.T, w *world) { must(t, w.Undefine(testInstance)); must(t, w.Remove(srcPath)) }, deleted: true},
		"another image is there":     {happens: remake},
		"another one is in the pool": {happens: remake, pool: "old"},
		"the pool is elsewhere":      {happens: func(t *testing.T, w *world) { must(t, w.Undefine(testInstance)) }, pool: "moved"},
		"it is another volume": {happens: func(t *testing.T, w *world) {
			must(t, w.Undefine(testInstance))
			w.registry.others = []api.Volume{volumeAt(srcPath)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, hv.StateStopped)
			w.AddPool(hv.PoolInfo{Name: "old", Type: "dir", Path: "/old", Active: true})
			w.AddPool(hv.PoolInfo{Name: "moved", Type: "dir", Path: "/moved", Active: true})
			must(t, w.CreateImage("/moved/vol.raw", hvtest.Raw, testSize))
			m := newEnv(w.ports(), fakeHistory{}, nil, func(string) {}, slog.New(slog.DiscardHandler))
			s := testSpec(MethodOffline)
			if s.Src.Pool = c.pool; c.pool != "" {
				s.Src.Name = "vol.raw"
			}
			src, err := m.images.Fingerprint(t.Context(), srcPath)
			must(t, err)
			s.SrcPrint = src
			w.registry.vol.Location = s.Dst
			c.happens(t, w)
			must(t, m.deleteSource(t.Context(), &s))
			if left := w.Exists(srcPath); left == c.deleted {
				t.Errorf("the image at src is there: %t, want %t", left, !c.deleted)
			}
			if !w.Exists("/moved/vol.raw") {
				t.Error("what the pool has under that name is gone")
			}
		})
	}
}

// TestADestinationAtAPathIsInAPoolOrInAnAllowedPlace: also where nothing is yet.
func TestADestinationAtAPathIsInAPoolOrInAnAllowedPlace(t *testing.T) {
	for name, pool := range map[string]bool{"free": false, "in a pool": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				if pool {
					d.world.AddPool(hv.PoolInfo{Name: "open", Type: "dir", Path: "/usr", Active: true})
				}
				_, err := d.manager().Start(context.Background(), StartRequest{
					OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPath: "/usr/dst.raw"},
				})
				if refused := api.CodeOf(err) == api.CodePermissionDenied; refused == pool || pool && err != nil {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
