// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

const luksSecret = migratetest.LUKSSecret

// privateWorld is a world with a LUKS container that has a private passphrase as the volume.
func privateWorld(t *testing.T, state hv.State) *migratetest.World {
	t.Helper()
	w := migratetest.LUKSWorld(t, state)
	w.Images.Private = luksSecret
	return w
}

// The guest's writes are encrypted at each place: hvtest finds an overlay or a destination that is
// not encrypted.
func TestALUKSContainerMovesUnderAnEncryptedOverlayInEveryState(t *testing.T) {
	for _, state := range allStates {
		for name, end := range map[string]api.MigrationState{"complete": api.MigrationCompleted, "cancel": api.MigrationCancelled} {
			t.Run(name+" "+string(state), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDaemon(t, migratetest.LUKSWorld(t, state))
					mig := d.begin(d.world.To)
					info, err := d.world.Info(overlayOf(mig))
					if err != nil || info.Secret != luksSecret || info.SizeBytes != testSize {
						t.Errorf("the overlay is %+v, %v", info, err)
					}
					for range 20 {
						d.world.GuestWrites()
					}
					if end == api.MigrationCancelled {
						_, _, err = d.manager().Cancel(t.Context(), d.call(mig.ID))
						must(t, err)
						d.until(mig.ID, end)
						calm(d)
						d.stayed()
						return
					}
					_, _, err = d.manager().Copy(t.Context(), d.call(mig.ID))
					must(t, err)
					d.until(mig.ID, api.MigrationCopied)
					mig = d.until(d.completes(mig), end)
					calm(d)
					d.moved(mig)
					if at := d.world.Registry.CurrentVolume().Location; at.LUKSSecret != luksSecret || mig.Method != move.MethodOverlay {
						t.Errorf("by %s the volume went to %+v", mig.Method, at)
					}
				})
			})
		}
	}
}

func TestAFoldWithoutThePassphraseIsRefusedAndGoesOnOnceItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, migratetest.LUKSWorld(t, hv.StateRunning))
		mig := d.begin(d.world.To)
		for range 20 {
			d.world.GuestWrites()
		}
		_, _, err := d.manager().Copy(t.Context(), d.call(mig.ID))
		must(t, err)
		mig = d.until(mig.ID, api.MigrationCopied)
		must(t, d.world.Stop(testInstance))
		d.world.Images.Private = luksSecret
		failed := d.completes(mig)
		calm(d)
		if at := d.get(failed); at.State.Final() || at.Error == nil || at.Error.Code != api.CodeStateForbidden {
			t.Errorf("without the passphrase it is %s: %+v", at.State, at.Error)
		}
		d.world.Images.Private = ""
		mig = d.until(d.completes(mig), api.MigrationCompleted)
		calm(d)
		d.moved(mig)
	})
}

func TestALUKSContainerWhoseSecretIsPrivateMovesWhileItsInstanceIsKeptOffWhateverHappensAtEveryCall(t *testing.T) {
	const path = "/var/other.raw"
	for what, happen := range map[string]func(d *daemon) hvtest.Fault{
		"the daemon dies":            func(d *daemon) hvtest.Fault { return hvtest.Fault{Do: func() { go d.Restart() }} },
		"the guest is to be started": func(d *daemon) hvtest.Fault { return hvtest.Fault{Do: func() { _ = d.world.Start(testInstance) }} },
	} {
		t.Run(what, func(t *testing.T) {
			everyCallOn(t, privateWorld, hv.StateStopped, func(t *testing.T, d *daemon, fault hvtest.Fault) {
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
				if at := d.world.Registry.CurrentVolume().Location; at.Path != path || at.LUKSSecret != luksSecret || mig.Method != move.MethodOffline {
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
			must(t, w.SetConfigChain(t.Context(), testInstance, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: srcPath, LUKSSecret: secret}}))
		}
	}
	private := func(_ *testing.T, w *migratetest.World) { w.Images.Private = luksSecret }
	shared := func(t *testing.T, w *migratetest.World) {
		must(t, w.Destroy(testInstance))
		w.Redefine(t, func(d *hv.Domain) { d.Config[0].Shareable, d.Config[0].Chain[0].LUKSSecret = true, luksSecret })
		must(t, w.Start(testInstance))
	}
	for _, c := range []struct {
		name   string
		state  hv.State
		world  func(*testing.T, *migratetest.World)
		target api.MigrationTarget
		code   api.Code
		text   string
	}{
		{"under a guest that runs, with a private secret", hv.StateRunning, private, api.MigrationTarget{ToPool: "new"}, api.CodeUnsupportedDisk, "private"},
		{"under an overlay, with a private secret", hv.StateStopped, private, api.MigrationTarget{ToPool: "new", Method: move.MethodOverlay}, api.CodeUnsupportedDisk, "overlay"},
		{"by a mirror", hv.StateRunning, nil, api.MigrationTarget{ToPool: "new", Method: move.MethodMirror}, api.CodeUnsupportedDisk, "header"},
		{"that can only be mirrored", hv.StateRunning, shared, api.MigrationTarget{ToPool: "new"}, api.CodeUnsupportedDisk, "header"},
		{"another format", hv.StateStopped, nil, api.MigrationTarget{ToPool: "new", ToFormat: api.FormatQcow2}, api.CodeInvalidArgument, "LUKS"},
		{
			"to an export", hv.StateStopped, func(t *testing.T, w *migratetest.World) {
				must(t, w.CreateImage(migratetest.Export.Path, hvtest.Raw, testSize+hvtest.HeaderBytes))
			},
			api.MigrationTarget{ToPath: migratetest.Export.Path},
			api.CodeInvalidArgument, "LUKS",
		},
		{"to a larger file", hv.StateRunning, larger, api.MigrationTarget{ToPath: "/var/larger.raw"}, api.CodeSizeMismatch, ""},
		{"that another secret opens", hv.StateStopped, opened(uuid.NewString()), api.MigrationTarget{ToPool: "new"}, api.CodeChainChanged, ""},
		{"that no secret opens", hv.StateStopped, opened(""), api.MigrationTarget{ToPool: "new"}, api.CodeChainChanged, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := migratetest.LUKSWorld(t, c.state)
				if c.world != nil {
					c.world(t, w)
				}
				d := newDaemon(t, w)
				_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: c.target, Composite: true})
				if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
					t.Errorf("got %v, want %s with %q", err, c.code, c.text)
				}
				if id := d.world.Registry.CurrentVolume().MigrationID; id != "" {
					t.Errorf("migration %s was begun", id)
				}
			})
		})
	}
	t.Run("by the registry", func(t *testing.T) {
		w := migratetest.LUKSWorld(t, hv.StateStopped)
		err := newDaemon(t, w).manager().Parts.CheckPaused(t.Context(), w.Registry.Vol, w.Registry.Vol.Attachments[0], nil)
		if api.CodeOf(err) != api.CodeUnsupportedDisk {
			t.Errorf("got %v", err)
		}
	})
}
