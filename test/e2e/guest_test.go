// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// load is what the guests do: about as much as they can under TCG while the
// host still gets something done.
var load = lab.Load{Interval: time.Millisecond, Depth: 4}

// shortInterval is that of the load in make test, where the time of the processors is short: what
// the guests do not take of it the daemon and its tools have.
const shortInterval = 4 * time.Millisecond

// guest is a domain that writes to all its disks, and is under Volferry's care
// once it was adopted.
type guest struct {
	*lab.Guest

	host     *host
	disks    []lab.Disk
	instance api.Instance
	plugged  []*plugged         // the volumes that were attached to it
	written  map[string]*volume // what was attached under a name of the guest's, at last
	writing  time.Time          // since when it writes to every disk
	slots    []slot             // of the domain before anything was done to it
	settled  bool               // assertSettled was called
	cuts     []time.Time        // of its power: what it had not flushed may be lost
	grown    int                // bytes by which its disk vda is larger than at first
}

// defineGuest defines a guest, stopped.
func (h *host) defineGuest(t *testing.T, disks ...lab.Disk) *guest {
	t.Helper()
	return h.defineGuestLike(t, lab.GuestConfig{Disks: disks})
}

// defineGuestLike is defineGuest for guests that are not like the others. It names
// them.
func (h *host) defineGuestLike(t *testing.T, cfg lab.GuestConfig) *guest {
	t.Helper()
	g := &guest{host: h, disks: cfg.Disks}
	cfg.Name = fmt.Sprintf("g%d", h.number())
	var err error
	g.Guest, err = h.Libvirtd.DefineGuest(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !g.settled && !t.Failed() && !t.Skipped() {
			t.Errorf("the test of guest %s does not end with assertSettled", g.Name)
		}
		if g.instance.ID != "" && !t.Failed() {
			g.forget(t)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	g.slots = g.persistentSlots(t)
	return g
}

// adopt puts the guest under Volferry's care.
func (g *guest) adopt(t *testing.T) {
	t.Helper()
	g.instance = get[api.Instance](t, g.host, "instance", "instance", "adopt", g.Name)
}

// forget takes the guest out of Volferry's care.
func (g *guest) forget(t *testing.T) {
	ctx := context.WithoutCancel(t.Context()) // the test has ended
	if _, err := g.host.Ctl(ctx, "instance", "forget", g.Name, "--with-definition", "--force"); err != nil {
		t.Error(err)
	}
}

// runningGuest is a guest that writes and was adopted.
func (h *host) runningGuest(t *testing.T, disks ...lab.Disk) *guest {
	t.Helper()
	g := h.defineGuest(t, disks...)
	g.boot(t)
	g.adopt(t)
	return g
}

// stoppedGuest is a guest that never ran and was adopted. Its volumes hold what
// they were filled with.
func (h *host) stoppedGuest(t *testing.T, disks ...lab.Disk) *guest {
	t.Helper()
	g := h.defineGuest(t, disks...)
	g.adopt(t)
	return g
}

// boot starts the guest and returns when it writes to every disk. It must see
// the disks that it always had.
func (g *guest) boot(t *testing.T) {
	t.Helper()
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.seesItsDisks(t)
	g.write(t)
}

// write has the guest write to every disk, and returns when it does.
func (g *guest) write(t *testing.T) {
	t.Helper()
	for i := range g.disks {
		if err := g.Write(target(i), load); err != nil {
			t.Fatal(err)
		}
	}
	g.writes(t)
	g.writing = time.Now()
}

// quiesce stops the writers, with nothing in flight.
func (g *guest) quiesce(t *testing.T) {
	t.Helper()
	for i := range g.disks {
		if err := g.Quiesce(t.Context(), target(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// seesItsDisks waits until the guest has booted: names, serials and sizes are
// those of the beginning, wherever the bytes are now. What was attached to it
// comes besides.
func (g *guest) seesItsDisks(t *testing.T) {
	t.Helper()
	got, err := g.Disks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got = slices.DeleteFunc(slices.Clone(got), func(d workload.GuestDisk) bool {
		return slices.ContainsFunc(g.plugged, func(p *plugged) bool { return strings.HasPrefix(p.id, d.Serial) })
	})
	for _, p := range g.plugged {
		p.appears(t)
	}
	want := make([]workload.GuestDisk, len(g.disks))
	for i, d := range g.disks {
		want[i] = workload.GuestDisk{Name: target(i), Serial: d.Serial, Blocks: volumeBytes / workload.BlockSize}
	}
	want[0].Blocks += uint64(g.grown / workload.BlockSize)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("disks that guest %s sees (-want +got):\n%s", g.Name, diff)
	}
}

// writes waits until the guest has written to every disk, from now on.
func (g *guest) writes(t *testing.T) {
	t.Helper()
	const enough = 100
	for i := range g.disks {
		if err := g.WaitWriting(t.Context(), target(i), enough); err != nil {
			t.Fatal(err)
		}
	}
}

func (g *guest) powerOff(t *testing.T) {
	t.Helper()
	if err := g.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (g *guest) destroy(t *testing.T) {
	t.Helper()
	if err := g.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (g *guest) pause(t *testing.T) {
	t.Helper()
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.host.paused[g.Name] = true
}

func (g *guest) resume(t *testing.T) {
	t.Helper()
	delete(g.host.paused, g.Name)
	if err := g.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// state is the state of the domain in virsh's words.
func (g *guest) state(t *testing.T) string {
	t.Helper()
	s, err := g.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// target is the name of a disk by its position.
func target(position int) string { return "vd" + string(rune('a'+position)) }

// volumeName is what adoption called the volume.
func (g *guest) volumeName(target string) string { return g.Name + "-" + target }

// volume is the registry's word on a disk of the guest.
func (g *guest) volume(t *testing.T, target string) api.Volume {
	t.Helper()
	return get[api.Volume](t, g.host, "volume", "volume", "show", g.volumeName(target))
}

// attachment is the one attachment of a disk of the guest.
func (g *guest) attachment(t *testing.T, target string) api.Attachment {
	t.Helper()
	v := g.volume(t, target)
	if len(v.Attachments) != 1 {
		t.Fatalf("volume %s has %d attachments, want 1", v.Name, len(v.Attachments))
	}
	return v.Attachments[0]
}
