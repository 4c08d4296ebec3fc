// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
	"github.com/volferry/volferry/test/site"
)

// volume is a volume that comes to guests and leaves them. It is made after the
// guests that it comes to, and deleted before them.
type volume struct {
	host *host
	disk lab.Disk
	name string
	id   string
}

// adoptVolume makes a volume of a disk of diskIn.
func (h *host) adoptVolume(t *testing.T, d lab.Disk, flags ...string) *volume {
	t.Helper()
	v := &volume{host: h, disk: d, name: fmt.Sprintf("data%d", h.number())}
	args := append([]string{"volume", "adopt", v.name, "--path", d.Path, "--format", d.Format}, flags...)
	v.id = get[api.Volume](t, h, "volume", args...).ID
	t.Cleanup(func() {
		if !t.Failed() {
			v.remove(t)
		}
	})
	return v
}

// remove detaches the volume from whoever has it, and deletes it.
func (v *volume) remove(t *testing.T) {
	ctx := context.WithoutCancel(t.Context()) // the test has ended
	for _, a := range v.show(t).Attachments {
		if _, err := v.host.Ctl(ctx, "volume", "detach", v.name, a.InstanceID); err != nil {
			t.Error(err)
		}
	}
	if _, err := v.host.Ctl(ctx, "volume", "delete", v.name, "--yes"); err != nil {
		t.Error(err)
	}
}

// show is the registry's word on the volume.
func (v *volume) show(t *testing.T) api.Volume {
	t.Helper()
	at, err := getAfter[api.Volume](t, v.host, "volume", "volume", "show", v.id)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// plugged is a volume that a guest has.
type plugged struct {
	*volume

	guest *guest
	seen  string // the guest's own name of the disk
	mode  api.Mode
	dev   string
}

// attach attaches a volume to the guest, whatever state that is in. A guest that
// runs must see it when it returns, and has it among its slots from then on.
func (g *guest) attach(t *testing.T, v *volume, flags ...string) *plugged {
	t.Helper()
	a := get[api.Attachment](t, g.host, "attachment", append([]string{"volume", "attach", v.name, g.Name}, flags...)...)
	if a.State != api.AttachmentAttached || a.InstanceID != g.UUID || a.VolumeID != v.id {
		t.Fatalf("attach ended as %+v", a)
	}
	p := &plugged{volume: v, guest: g, mode: a.Mode, dev: a.Device}
	g.took(t, p)
	return p
}

// took is the guest with a volume that was just attached to it.
func (g *guest) took(t *testing.T, p *plugged) {
	t.Helper()
	g.slots = g.persistentSlots(t)
	g.plugged = append(g.plugged, p)
	p.assertAttached(t)
	if g.state(t) == "running" {
		p.appears(t)
	}
}

// appears waits until the guest has the disk. What it writes to it from now on
// is known; what it wrote before stays known if the name was not another's since.
func (p *plugged) appears(t *testing.T) {
	t.Helper()
	d, err := p.guest.WaitDisk(t.Context(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	const shown = 20 // of a serial, to a virtio guest
	want := workload.GuestDisk{Name: d.Name, Serial: p.id[:shown], Blocks: volumeBytes / workload.BlockSize, ReadOnly: p.mode == api.ModeRO}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("disk that guest %s sees (-want +got):\n%s", p.guest.Name, diff)
	}
	p.seen = d.Name
	if p.guest.written[p.seen] == p.volume {
		return
	}
	if err := p.guest.AddDisk(t.Context(), p.seen, p.disk); err != nil {
		t.Fatal(err)
	}
	if p.guest.written == nil {
		p.guest.written = map[string]*volume{}
	}
	p.guest.written[p.seen] = p.volume
}

// writes has the guest write to the disk, and returns when it does.
func (p *plugged) writes(t *testing.T) {
	t.Helper()
	if err := p.guest.Write(p.seen, load); err != nil {
		t.Fatal(err)
	}
	const enough = 50
	if err := p.guest.WaitWriting(t.Context(), p.seen, enough); err != nil {
		t.Fatal(err)
	}
}

func (p *plugged) quiesce(t *testing.T) {
	t.Helper()
	if err := p.guest.Quiesce(t.Context(), p.seen); err != nil {
		t.Fatal(err)
	}
}

// detach detaches the volume. The guest does not have it when it returns.
func (p *plugged) detach(t *testing.T) {
	t.Helper()
	p.host.ctl(t, "volume", "detach", p.name, p.guest.Name)
	p.assertDetached(t)
}

// assertDetached claims that nothing is left of the attachment.
func (p *plugged) assertDetached(t *testing.T) {
	t.Helper()
	g := p.guest
	state := g.state(t)
	if state == "running" && p.seen != "" {
		if err := g.WaitNoDisk(t.Context(), p.id); err != nil {
			t.Fatal(err)
		}
	}
	at := p.show(t)
	if slices.ContainsFunc(at.Attachments, func(a api.Attachment) bool { return a.InstanceID == g.UUID }) {
		t.Errorf("volume %s is still at instance %s: %+v", p.name, g.Name, at)
	}
	if len(at.Attachments) == 0 && at.Status != api.VolumeAvailable {
		t.Errorf("volume %s has no attachment and is %s", p.name, at.Status)
	}
	g.plugged = slices.DeleteFunc(g.plugged, func(o *plugged) bool { return o == p })
	g.slots = slices.DeleteFunc(g.slots, func(s slot) bool { return s.Target == p.dev })
	g.assertSameSlots(t)
	g.assertNoLeftovers(t, state)
	if state != "shut off" {
		g.assertHoldsOnlyItsDisks(t)
	}
}

// assertAttached claims that registry, definition and running guest have the
// attachment, and the same of it.
func (p *plugged) assertAttached(t *testing.T) {
	t.Helper()
	g := p.guest
	at := p.show(t)
	i := slices.IndexFunc(at.Attachments, func(a api.Attachment) bool { return a.InstanceID == g.UUID })
	if i < 0 || at.Status != api.VolumeInUse || at.MigrationID != "" {
		t.Fatalf("volume is not as at rest: %+v", at)
	}
	a := at.Attachments[i]
	if a.State != api.AttachmentAttached || a.Device != p.dev || a.Mode != p.mode || a.Location != at.Location {
		t.Errorf("attachment is not as at rest: %+v", a)
	}
	slots := g.persistentSlots(t)
	n := slices.IndexFunc(slots, func(s slot) bool { return s.Target == p.dev })
	if n < 0 {
		t.Fatalf("the definition has no %s: %+v", p.dev, slots)
	}
	if s := slots[n]; s.Source != at.Location.Path || s.Format != string(at.Location.Format) {
		t.Errorf("the definition has %+v, the registry %+v", s, at.Location)
	}
	mustContain(t, slots[n].Rest, "<serial>"+p.id+"</serial>", "<address ", `cache="none"`)
	for word, want := range map[string]bool{"<readonly/>": p.mode == api.ModeRO, "<shareable/>": at.Multiattach} {
		if got := strings.Contains(slots[n].Rest, word); got != want {
			t.Errorf("%s is there: %t, want %t: %s", word, got, want, slots[n].Rest)
		}
	}
	g.assertSameSlots(t)
	state := g.state(t)
	g.assertNoLeftovers(t, state) // the running guest's disks are the definition's
	if state != "shut off" {
		g.assertHoldsOnlyItsDisks(t)
	}
	if w := get[api.Which](t, p.host, "which", "volume", "which", p.id); !w.Agree {
		t.Errorf("volume which: %+v", w)
	}
}

// assertHolds claims that the volume, which nobody writes to, holds every write
// that the guest was told is done.
func (p *plugged) assertHolds(t *testing.T) {
	t.Helper()
	p.guest.assertHolds(t, p.seen, p.show(t).Location)
}

// assertHoldsWhatWasAcknowledged is assertHolds for a disk that went from under
// the guest, which saw errors then.
func (p *plugged) assertHoldsWhatWasAcknowledged(t *testing.T) {
	t.Helper()
	if h := p.guest.check(t, p.seen, p.show(t).Location); len(h.Acks) == 0 {
		t.Errorf("guest %s never wrote to volume %s", p.guest.Name, p.name)
	}
}

// assertUntouched claims that the volume holds what it was filled with.
func (v *volume) assertUntouched(t *testing.T) {
	t.Helper()
	r, err := lab.Check(t.Context(), v.disk.Volume, untouched(v.disk))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

// getAfter is get that may be called when the test is over.
func getAfter[T any](t *testing.T, h *host, noun string, args ...string) (T, error) {
	return site.Get[T](context.WithoutCancel(t.Context()), h.Caller, noun, args...)
}
