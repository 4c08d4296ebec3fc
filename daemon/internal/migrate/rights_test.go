// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

func TestAnImageThatTheMigrationMakesGetsTheRightsOfSrc(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		inBubble(t, state, func(t *testing.T, d *daemon) {
			mig := d.begin(toNewPool)
			overlay := d.manager().Preflight.OverlayPath(mig.ID)
			for what, path := range map[string]string{"dst": mig.Dst.Path, "the overlay": overlay} {
				if !d.world.Images.GaveRights(path) {
					t.Errorf("%s: %s has not the rights of src", state, what)
				}
			}
		})
	}
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path := filepath.Join(t.TempDir(), "dst.raw")
		d.begin(api.MigrationTarget{ToPath: path})
		if !d.world.Images.GaveRights(path) {
			t.Error("a dst that is made at a path has not the rights of src")
		}
	})
}

func TestAnImageThatWasThereKeepsItsRights(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path := filepath.Join(t.TempDir(), "dst.raw")
		must(t, d.world.CreateImage(path, hvtest.Raw, testSize))
		d.begin(api.MigrationTarget{ToPath: path})
		if d.world.Images.GaveRights(path) {
			t.Error("it was given those of src")
		}
	})
}

// libvirt restores the rights of an image when a guest releases it as the top of a chain, and src
// was below the overlay then.
func TestSrcIsItsOwnersAgainWhenItIsLeft(t *testing.T) {
	const back = "give back " + srcPath
	for name, c := range map[string]struct {
		state  hv.State
		cancel bool
		want   bool
	}{
		"live complete": {hv.StateRunning, false, true},
		"cold complete": {hv.StateStopped, false, true},
		"cold cancel":   {hv.StateStopped, true, true},
		// libvirt remembers the owner of the overlay, which is src's, and restores it when the
		// guest releases src. Before that src belongs to QEMU.
		"live cancel": {hv.StateRunning, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.state, func(t *testing.T, d *daemon) {
				_, done := d.endByHand(c.cancel)
				if slices.Contains(done, back) != c.want {
					t.Errorf("%v, want src given back before the overlay goes: %t", done, c.want)
				}
			})
		})
	}
}

// Otherwise QEMU would fail only in the switch, after the whole copy, or at the next start.
func TestAnImageThatQEMUCannotOpenEndsTheStartBeforeTheFreeze(t *testing.T) {
	for _, dir := range []string{"/new", "/overlays"} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			d.world.Images.Shut = dir
			mig := d.until(d.migrate(), api.MigrationError)
			if mig.Error == nil || mig.Error.Code != api.CodePermissionDenied || !strings.Contains(mig.Error.Message, dir+"/") {
				t.Errorf("it ended with %v, want permission_denied and the path", mig.Error)
			}
			d.stayed()
			if d.world.Exists(mig.Dst.Path) {
				t.Error("dst is left")
			}
		})
	}
}

func TestADestinationThatQEMUCannotOpenIsRefusedAtOnce(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path := filepath.Join(t.TempDir(), "dst.raw")
		must(t, d.world.CreateImage(path, hvtest.Raw, testSize))
		d.world.Images.Shut = filepath.Dir(path)
		_, err := d.manager().Start(context.Background(), StartRequest{OpID: "a", VolumeID: testVolume, Target: api.MigrationTarget{ToPath: path}})
		if api.CodeOf(err) != api.CodePermissionDenied {
			t.Errorf("%v, want permission_denied", err)
		}
		d.stayed()
	})
}
