// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// TestNothingIsAttachedThroughALinkInAPool, whether the link exists before the request or is
// planted after its admission.
func TestNothingIsAttachedThroughALinkInAPool(t *testing.T) {
	for _, when := range []string{"before the request", "when the volume was reserved"} {
		for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
			t.Run(when+", "+string(state), func(t *testing.T) {
				inBubble(t, func(t *testing.T, d *daemon) {
					planted := hosttest.PlantLater(t, d.world.Fake, testSize)
					d.world.registry.vol.Location = planted.Location
					d.world.images.Places = planted.Rules(d.world.Fake)
					if when == "before the request" {
						planted.Plant(t)
					} else {
						d.world.registry.onChange = func(to api.AttachmentState) {
							if to == api.AttachmentReserved {
								planted.Plant(t)
							}
						}
					}
					planted.Refused(t, failed(d.attach("a", api.VolumeAttach{Instance: "web"})))
					if changes := d.world.registry.changes; when == "before the request" && len(changes) != 0 {
						t.Errorf("the registry was told %v", changes)
					}
					d.world.wantNone(t)
					if live, config := d.disks(t, web); live != nil || config != nil {
						t.Errorf("the guest has %+v, its definition %+v", live, config)
					}
				}, state)
			})
		}
	}
}

// TestNothingOfTheShelfIsConnectedThroughALinkInAPool: an unshelve asks this package for each
// volume's chain. The link is at the path of the image, or of a linked clone's base image.
func TestNothingOfTheShelfIsConnectedThroughALinkInAPool(t *testing.T) {
	for _, of := range []string{"the image", "the base image"} {
		t.Run(of, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				planted := hosttest.PlantLink(t, d.world.Fake, testSize)
				vol := d.world.registry.vol
				vol.Location = planted.Location
				if of == "the base image" {
					vol.Location = cloneOver(t, d.world.Fake, planted.Location)
				}
				att := api.Attachment{ID: testAtt, VolumeID: testVolume, InstanceID: web, DiskAttachment: api.DiskAttachment{Device: "vdb", Mode: api.ModeRW}, Location: vol.Location}
				for name, connect := range map[string]func() ([]hv.Image, error){
					"Chain":   func() ([]hv.Image, error) { return d.manager().Chain(t.Context(), vol, att) },
					"Connect": func() ([]hv.Image, error) { return d.manager().Connect(t.Context(), vol, att) },
				} {
					chain, err := connect()
					planted.Refused(t, err)
					if len(chain) > 0 && name == "Connect" {
						t.Errorf("it is connected to %v", chain)
					}
				}
			})
		})
	}
}

// cloneOver makes a linked clone over a base image, in a pool of the fake.
func cloneOver(t *testing.T, f *hvtest.Fake, base api.Location) api.Location {
	t.Helper()
	dir := t.TempDir()
	f.AddPool(hv.PoolInfo{Name: "clones", Type: "dir", Path: dir, Active: true})
	l := api.Location{
		Pool: "clones", Name: "clone.qcow2", Path: dir + "/clone.qcow2", Format: api.FormatQcow2, SizeBytes: base.SizeBytes,
		Backing: api.NewBacking([]api.BaseImage{{Path: base.Path, Format: base.Format}}),
	}
	must(t, f.CreateOverlay(l.Path, hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: base.Path}, base.SizeBytes))
	return l
}
