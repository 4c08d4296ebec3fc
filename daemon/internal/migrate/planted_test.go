// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// startOf returns a move as the commands and a drain request it.
func startOf(target api.MigrationTarget) StartRequest {
	return StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true}
}

func TestNothingIsMovedToALinkInAPool(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		planted := hosttest.PlantLink(t, d.world.Fake, testSize)
		_, err := d.manager().Start(context.Background(), startOf(api.MigrationTarget{ToPath: planted.Location.Path}))
		planted.Refused(t, err)
		d.stayed()
	})
}

// at puts the volume of a world, with the instance off, at a place.
func (d *daemon) at(t *testing.T, l api.Location) {
	t.Helper()
	img := hv.Image{Type: hv.SourceFile, Format: string(l.Format), Path: l.Path}
	d.world.Redefine(t, func(dom *hv.Domain) {
		dom.Config[0].Serial = testVolume
		dom.Config[0].Chain = append([]hv.Image{img}, d.world.Bases...)
	})
	d.world.Src = img
	r := d.world.Registry
	r.Lock()
	defer r.Unlock()
	r.Vol.Location = l
	for i := range r.Vol.Attachments {
		r.Vol.Attachments[i].Location = l
	}
}

// The moves of an instance and of a drain make the same calls. The link is in the place of the
// volume, or of the base image of a linked clone.
func TestNothingIsMovedFromALinkInAPool(t *testing.T) {
	asks := map[string]func(*Manager) error{
		"plan": func(m *Manager) error {
			_, err := m.Plan(context.Background(), testVolume, toNewPool)
			return err
		},
		"migrate": func(m *Manager) error {
			_, err := m.Start(context.Background(), startOf(toNewPool))
			return err
		},
		"start alone": func(m *Manager) error {
			_, err := m.Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool})
			return err
		},
		"drain": func(m *Manager) error {
			_, err := m.Start(context.Background(), startOf(api.MigrationTarget{ToPool: "new", CopyOptions: api.CopyOptions{Verify: api.VerifyFull}, DeleteSource: true}))
			return err
		},
	}
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		for what, ask := range asks {
			for _, of := range []string{"the image", "the base image"} {
				t.Run(string(state)+", "+what+", "+of, func(t *testing.T) {
					inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
						planted := hosttest.PlantLink(t, d.world.Fake, testSize)
						l := planted.Location
						if of == "the base image" {
							l = cloneOver(t, d.world, planted.Location)
						}
						d.at(t, l)
						if state.Active() {
							must(t, d.world.Start(testInstance))
						}
						planted.Refused(t, ask(d.manager()))
						d.stayed()
					})
				})
			}
		}
	}
}

// cloneOver makes a linked clone in a pool of the fake over a base image.
func cloneOver(t *testing.T, w *migratetest.World, base api.Location) api.Location {
	t.Helper()
	dir := t.TempDir()
	w.AddPool(hv.PoolInfo{Name: "clones", Type: "dir", Path: dir, Active: true})
	over := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: base.Path}
	must(t, w.Fake.CreateOverlay(dir+"/clone.qcow2", over, base.SizeBytes))
	w.Bases = []hv.Image{over}
	return api.Location{
		Pool: "clones", Name: "clone.qcow2", Path: dir + "/clone.qcow2", Format: api.FormatQcow2, SizeBytes: base.SizeBytes,
		Backing: api.NewBacking([]api.BaseImage{{Path: base.Path, Format: base.Format}}),
	}
}

// Its host, or another host that has its shared pool, makes the move.
func TestAVolumeThatNoGuestHasIsNotMovedFromALinkInAPool(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		planted := hosttest.PlantLink(t, d.world.Fake, testSize)
		must(t, d.world.Undefine(testInstance))
		d.world.Unattached()
		d.world.Registry.Vol.Location = planted.Location
		_, err := d.manager().Start(context.Background(), startOf(toNewPool))
		planted.Refused(t, err)
	})
}

// The copy has begun with the old image.
func TestAMoveReadsNothingFromALinkThatIsPlantedInIt(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		planted := hosttest.PlantLater(t, d.world.Fake, testSize)
		d.world.Images.Places = planted.Rules(d.world.Fake)
		d.at(t, planted.Location)
		mig := d.begin(toNewPool)
		planted.Plant(t)
		_, id, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		refused := d.ended(id)
		if refused == nil {
			t.Fatal("it was copied")
		}
		planted.Refused(t, refused)
		planted.Restore(t)
		d.until(d.cancels(mig.ID), api.MigrationCancelled)
		d.stayed()
	})
}
