// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

// identityOf returns the identity of the device at a path.
func (w *world) identityOf(t *testing.T, path string) string {
	t.Helper()
	fingerprint, err := w.images.Fingerprint(t.Context(), path)
	must(t, err)
	identity := image.IdentityIn(fingerprint)
	if identity == "" {
		t.Fatalf("%s has the fingerprint %s, which is none of a device", path, fingerprint)
	}
	return identity
}

// replaceDevice puts another device at a path.
func (w *world) replaceDevice(t *testing.T, path string) {
	t.Helper()
	must(t, w.Remove(path))
	must(t, w.CreateImage(path, hvtest.Raw, testSize))
}

const pathOfDevice = "/dev/disk/by-path/lun-1"

// onDevice adds a volume on a device outside pools, with this identity in the registry.
func (w *world) onDevice(t *testing.T, identity string) api.Volume {
	t.Helper()
	must(t, w.CreateImage(pathOfDevice, hvtest.Raw, testSize))
	if identity == "its own" {
		identity = w.identityOf(t, pathOfDevice)
	}
	return w.addVolume("db", api.Location{Path: pathOfDevice, Format: api.FormatRaw, SizeBytes: testSize, Identity: identity})
}

func TestAVolumeThatIsMadeOnADeviceHasItsIdentity(t *testing.T) {
	w := newWorld(t)
	vol, err := w.start(t).Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize, Pool: "lvm", Format: api.FormatRaw})
	must(t, err)
	if is := w.identityOf(t, vol.Location.Path); vol.Location.Identity != is {
		t.Errorf("the registry has %q, and the device is %s", vol.Location.Identity, is)
	}
}

// look lets a manager inspect the images twice, and returns its log.
func look(t *testing.T, w *world) string {
	t.Helper()
	var log bytes.Buffer
	m := w.start(t)
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	<-time.After(looksEvery + time.Second)
	cancel()
	must(t, <-done)
	return log.String()
}

// A volume that a move brought to a new device has no identity until the registry gets it.
func TestAVolumeWithoutAnIdentityGetsThatOfItsDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		vol := w.onDevice(t, "")
		said := look(t, w)
		if has, is := w.registry.volumes[vol.ID].Location.Identity, w.identityOf(t, pathOfDevice); has != is || said != "" {
			t.Errorf("the registry has %q, the device is %s, and the log says %q", has, is, said)
		}
	})
}

// A move that has begun since is no fault of the image.
func TestAnIdentityThatTheRegistryCannotTakeIsNotWarnedOf(t *testing.T) {
	for _, c := range []struct {
		refused error
		warns   bool
	}{{api.Errorf(api.CodeMigrationActive, "it moves"), false}, {api.Errorf(api.CodeConflict, "it is another"), true}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.onDevice(t, "")
			w.registry.refusesIdentity = c.refused
			if said := look(t, w); (said != "") != c.warns {
				t.Errorf("%v: the log says %q", c.refused, said)
			}
		})
	}
}

func TestAnotherDeviceAtThePathOfAVolumeIsWarnedOfOnceAndTakenForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		vol := w.onDevice(t, "its own")
		must(t, w.Remove(pathOfDevice))
		must(t, w.CreateImage(pathOfDevice, hvtest.Raw, 2*testSize))
		said := look(t, w)
		if now := w.registry.volumes[vol.ID]; now.Location != vol.Location {
			t.Errorf("the registry has %+v, want %+v as before", now.Location, vol.Location)
		}
		if strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, vol.Location.Identity) || !strings.Contains(said, w.identityOf(t, pathOfDevice)) {
			t.Errorf("it was said %q, want one warning with both identities", said)
		}
	})
}

func TestAnotherDeviceAtThePathOfAVolumeIsNeitherDeletedNorResized(t *testing.T) {
	for name, ask := range map[string]func(*Manager, api.Volume) error{
		"delete":          func(m *Manager, v api.Volume) error { return deleted(m.Delete(t.Context(), testOp, v.ID, false)) },
		"delete by force": func(m *Manager, v api.Volume) error { return deleted(m.Delete(t.Context(), testOp, v.ID, true)) },
		"resize": func(m *Manager, v api.Volume) error {
			_, err := m.Resize(t.Context(), testOp, v.ID, api.VolumeResize{SizeBytes: 2 * testSize})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := w.start(t)
			vol, err := m.Create(t.Context(), "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aab", api.VolumeCreate{Name: "db", SizeBytes: testSize, Pool: "lvm", Format: api.FormatRaw})
			must(t, err)
			w.replaceDevice(t, vol.Location.Path)
			wantCode(t, ask(m, vol), api.CodeChainChanged)
			if now := w.registry.volumes[vol.ID]; now.Status != api.VolumeAvailable {
				t.Errorf("the volume is %s", now.Status)
			}
			w.identityOf(t, vol.Location.Path) // the device exists
			vol = w.registry.volumes[vol.ID]
			vol.Location.Identity = w.identityOf(t, vol.Location.Path)
			w.registry.volumes[vol.ID] = vol // as set by the operator
			if err := ask(m, vol); api.CodeOf(err) == api.CodeChainChanged {
				t.Errorf("with the device that the operator has named: %v", err)
			}
		})
	}
}

// A name in /dev leads to another device under a running guest, before this version has stored the
// volume's identity.
func TestTheIdentityOfADeviceIsTakenOnlyFromWhatItsGuestHasOpen(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(t *testing.T, w *world)
		taken   bool
	}{
		"the guest has it open": {func(*testing.T, *world) {}, true},
		"the guest has another open": {func(t *testing.T, w *world) {
			t.Helper()
			must(t, w.GoStale(guestID)) // so that libvirt has it under the old name
			must(t, w.Fake.DetachDisk(t.Context(), guestID, hv.Live, "vdb"))
			must(t, w.Extend(pathOfDevice, 2*testSize))
		}, false},
		"the guest is off": {func(t *testing.T, w *world) { t.Helper(); must(t, w.Destroy(guestID)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				v := w.onDevice(t, "")
				must(t, w.Define(hv.Domain{ID: guestID, Name: "web", Config: []hv.Disk{{
					Target: "vdb", Bus: "virtio", Device: "disk", Chain: []hv.Image{{Type: hv.SourceBlock, Format: hvtest.Raw, Path: pathOfDevice}},
				}}}))
				must(t, w.Start(guestID))
				v.Status, v.Attachments = api.VolumeInUse, []api.Attachment{{
					ID: "a", InstanceID: guestID, InstanceName: "web", DiskAttachment: api.DiskAttachment{Device: "vdb", Mode: api.ModeRW}, State: api.AttachmentAttached, Host: hostName,
				}}
				w.registry.volumes[v.ID] = v
				c.happens(t, w)
				said := look(t, w)
				now := w.registry.volumes[v.ID]
				if (now.Location.Identity != "") != c.taken || now.Location.SizeBytes != testSize || strings.Contains(said, "does not have open") == c.taken {
					t.Errorf("the registry has %q and %d bytes, and the log says %q; want the identity taken: %t", now.Location.Identity, now.Location.SizeBytes, said, c.taken)
				}
			})
		})
	}
}
