// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// A resize causes no event, so grown images are found by inspection. A smaller image may be another
// one, and a moving volume temporarily has another size.
func TestAnImageThatHasGrownIsTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int64
		edit  func(*api.Volume)
		want  int64
	}{
		"grown":                {bytes: 2 * testSize, want: 2 * testSize},
		"grown, with a guest":  {bytes: 2 * testSize, want: 2 * testSize, edit: attachedAt("")},
		"shrunk":               {bytes: testSize / 2, want: testSize},
		"moving":               {bytes: 2 * testSize, want: testSize, edit: func(v *api.Volume) { v.MigrationID = "m" }},
		"with another's guest": {bytes: 2 * testSize, want: testSize, edit: attachedAt("elsewhere")},
		"being deleted":        {bytes: 2 * testSize, want: testSize, edit: func(v *api.Volume) { v.Status = api.VolumeDeleting }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				g := w.start(t)
				vol, err := g.Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize})
				must(t, err)
				if c.edit != nil {
					v := w.registry.volumes[vol.ID]
					c.edit(&v)
					w.registry.volumes[vol.ID] = v
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- g.Run(ctx) }()
				synctest.Wait()
				must(t, w.Remove(vol.Location.Path))
				must(t, w.CreateImage(vol.Location.Path, hvtest.Raw, c.bytes))
				<-time.After(2 * looksEvery)
				cancel()
				must(t, <-done)
				if got := w.registry.volumes[vol.ID].Location.SizeBytes; got != c.want {
					t.Errorf("the registry has %d bytes, want %d", got, c.want)
				}
			})
		})
	}
}

// attachedAt attaches the volume at a host, "" for its own.
func attachedAt(host string) func(*api.Volume) {
	return func(v *api.Volume) {
		if host == "" {
			host = v.Host
		}
		v.Status, v.Attachments = api.VolumeInUse, []api.Attachment{{Host: host}}
	}
}

// TestAHostReportsTheSizeThatAnImageHas, not the registry's size.
func TestAHostReportsTheSizeThatAnImageHas(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	vol, err := g.Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize})
	must(t, err)
	must(t, w.Remove(vol.Location.Path))
	if _, err := g.Image(t.Context(), vol.ID); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("of an image that is away: %v", err)
	}
	for _, size := range []int64{testSize / 2, 2 * testSize} {
		must(t, w.CreateImage(vol.Location.Path, hvtest.Raw, size))
		got, err := g.Image(t.Context(), vol.ID)
		if must(t, err); got != (api.VolumeImage{Path: vol.Location.Path, SizeBytes: size}) {
			t.Errorf("the image is %+v, want %d bytes", got, size)
		}
		must(t, w.Remove(vol.Location.Path))
	}
}

// If the journal has the volume elsewhere, the image at the registry's location is not the
// volume's.
func TestNothingIsTakenOverFromAnImageThatTheJournalHasElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		vol, err := g.Create(t.Context(), testOp, api.VolumeCreate{Name: "db", SizeBytes: testSize})
		must(t, err)
		w.unrecorded = api.Errorf(api.CodeChainChanged, "it has moved")
		must(t, w.Remove(vol.Location.Path))
		must(t, w.CreateImage(vol.Location.Path, hvtest.Raw, 2*testSize))
		if got, err := g.Image(t.Context(), vol.ID); api.CodeOf(err) != api.CodeChainChanged {
			t.Errorf("the size for the registry: %+v, %v", got, err)
		}
		err = g.lookAt(t.Context(), &vol)
		if got := w.registry.volumes[vol.ID].Location.SizeBytes; api.CodeOf(err) != api.CodeChainChanged || got != testSize {
			t.Errorf("the registry has %d bytes after a look (%v)", got, err)
		}
		vol.Location.SizeBytes = 2 * testSize
		must(t, g.lookAt(t.Context(), &vol)) // nothing to store
	})
}

// TestAHostReportsNoSizeOfWhatIsNoPlaceForAVolume: the registry, or another host, may name any
// path.
func TestAHostReportsNoSizeOfWhatIsNoPlaceForAVolume(t *testing.T) {
	const file = "/etc/hostname"
	w := newWorld(t)
	g := w.start(t)
	must(t, w.CreateImage(file, hvtest.Raw, testSize))
	vol := w.addVolume("x", api.Location{Path: file, Format: api.FormatRaw, SizeBytes: testSize})
	if got, err := g.Image(t.Context(), vol.ID); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("%+v, %v, want permission_denied", got, err)
	}
	// A guest had it before it became a volume.
	const guest = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0abc"
	must(t, w.Define(hv.Domain{ID: guest, Name: "web", Config: []hv.Disk{{
		Target: "vda", Bus: "virtio", Device: "disk", Terminated: true, Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: file}},
	}}}))
	if got, err := g.Image(t.Context(), vol.ID); api.CodeOf(err) != api.CodePermissionDenied {
		t.Errorf("a guest has it that is none of the volume's: %+v, %v", got, err)
	}
	vol.Attachments = []api.Attachment{{InstanceID: guest, Host: hostName}}
	w.registry.volumes[vol.ID] = vol
	if got, err := g.Image(t.Context(), vol.ID); err != nil || got.SizeBytes != testSize {
		t.Errorf("its own guest has it: %+v, %v", got, err)
	}
}
