// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
)

const luksSecret = "2f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"

// luksWorld is a world whose volume is a LUKS container.
func luksWorld(t *testing.T, state hv.State) *migratetest.World {
	t.Helper()
	w := migratetest.NewWorld(t, hv.StateStopped)
	w.Src.LUKSSecret = luksSecret
	w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain[0].LUKSSecret = luksSecret })
	v := &w.Registry.Vol
	v.Location.LUKSSecret = luksSecret
	v.Attachments[0].Location = v.Location
	if state != hv.StateStopped {
		must(t, w.Start(testInstance))
	}
	return w
}

func TestALUKSContainerMovesWithItsSecretWhileItsInstanceIsKeptOffWhateverHappensAtEveryCall(t *testing.T) {
	const path = "/var/other.raw"
	for what, happen := range map[string]func(d *daemon) hvtest.Fault{
		"the daemon dies":            func(d *daemon) hvtest.Fault { return hvtest.Fault{Do: func() { go d.Restart() }} },
		"the guest is to be started": func(d *daemon) hvtest.Fault { return hvtest.Fault{Do: func() { _ = d.world.Start(testInstance) }} },
	} {
		t.Run(what, func(t *testing.T) {
			everyCallOn(t, luksWorld, hv.StateStopped, func(t *testing.T, d *daemon, fault hvtest.Fault) {
				t.Helper()
				d.world.Copier.Gate = make(chan struct{})
				id := d.migrateTo(api.MigrationTarget{ToPath: path})
				d.until(id, api.MigrationCopying)
				d.world.Inject(fault)
				close(d.world.Copier.Gate)
				mig := d.until(id, api.MigrationCompleted)
				calm(d)
				want := rawImage(path)
				want.LUKSSecret = luksSecret
				if err := d.world.SettledOn(want); err != nil {
					t.Error(err)
				}
				if at := d.world.Registry.CurrentVolume().Location; at.Path != path || at.LUKSSecret != luksSecret || mig.Method != steps.MethodOffline {
					t.Errorf("by %s the volume went to %+v", mig.Method, at)
				}
			}, happen)
		})
	}
}

func TestWhatIsNotDoneWithALUKSContainerIsRefusedByNameAndChangesNothing(t *testing.T) {
	larger := func(t *testing.T, w *migratetest.World) {
		must(t, w.CreateImage("/var/larger.raw", hvtest.Raw, 2*testSize))
	}
	opened := func(secret string) func(*testing.T, *migratetest.World) {
		return func(t *testing.T, w *migratetest.World) {
			w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain[0].LUKSSecret = secret })
		}
	}
	for _, c := range []struct {
		name   string
		state  hv.State
		world  func(*testing.T, *migratetest.World)
		target api.MigrationTarget
		code   api.Code
	}{
		{"under a guest that runs", hv.StateRunning, nil, api.MigrationTarget{ToPool: "new"}, api.CodeUnsupportedDisk},
		{"by a mirror", hv.StateRunning, nil, api.MigrationTarget{ToPool: "new", Method: steps.MethodMirror}, api.CodeUnsupportedDisk},
		{"under an overlay", hv.StateStopped, nil, api.MigrationTarget{ToPool: "new", Method: steps.MethodOverlay}, api.CodeUnsupportedDisk},
		{"another format", hv.StateStopped, nil, api.MigrationTarget{ToPool: "new", ToFormat: api.FormatQcow2}, api.CodeInvalidArgument},
		{
			"to an export", hv.StateStopped, func(t *testing.T, w *migratetest.World) {
				must(t, w.CreateImage(migratetest.Export.Path, hvtest.Raw, testSize))
			},
			api.MigrationTarget{ToPath: migratetest.Export.Path},
			api.CodeInvalidArgument,
		},
		{"to a larger file", hv.StateStopped, larger, api.MigrationTarget{ToPath: "/var/larger.raw"}, api.CodeSizeMismatch},
		{"that another secret opens", hv.StateStopped, opened(uuid.NewString()), api.MigrationTarget{ToPool: "new"}, api.CodeChainChanged},
		{"that no secret opens", hv.StateStopped, opened(""), api.MigrationTarget{ToPool: "new"}, api.CodeChainChanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := luksWorld(t, c.state)
				if c.world != nil {
					c.world(t, w)
				}
				d := newDaemon(t, w)
				_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: c.target, Composite: true})
				if api.CodeOf(err) != c.code {
					t.Errorf("got %v, want %s", err, c.code)
				}
				if id := d.world.Registry.CurrentVolume().MigrationID; id != "" {
					t.Errorf("migration %s was begun", id)
				}
			})
		})
	}
	t.Run("by the registry", func(t *testing.T) {
		w := luksWorld(t, hv.StateStopped)
		err := newDaemon(t, w).manager().CheckPaused(t.Context(), w.Registry.Vol, w.Registry.Vol.Attachments[0], nil)
		if api.CodeOf(err) != api.CodeUnsupportedDisk {
			t.Errorf("got %v", err)
		}
	})
}
