// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// trackedUnit is the unit of these bitmaps.
const trackedUnit = 64 << 10

// unitSet is a set of units by number.
type unitSet map[int64]bool

func (s unitSet) without(of unitSet) []int64 {
	left := maps.Clone(s)
	maps.DeleteFunc(left, func(unit int64, _ bool) bool { return of[unit] })
	return slices.Sorted(maps.Keys(left))
}

// writtenBy returns the units of the acknowledged operations that pass accepts. The content after a
// discard is undefined, so a bitmap may or may not have its units.
func writtenBy(h *lab.History, discards bool, pass func(lab.Ack) bool) unitSet {
	units := unitSet{}
	for _, a := range h.Acks {
		if a.Op.Kind == workload.Discard && !discards || !pass(a) {
			continue
		}
		for b := a.Op.Block; b < a.Op.Block+a.Op.Count; b++ {
			units[int64(b)*workload.BlockSize/trackedUnit] = true
		}
	}
	return units
}

// sharing is two real guests that write to one volume.
type sharing struct {
	env    *realEnv
	guests [2]*lab.Guest
	ids    [2]string
}

func newSharing(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{env: newRealEnv(t)}
	l := s.env.libvirtd
	vol := lab.Volume{Path: filepath.Join(l.Dir, "shared"), Format: "raw"}
	fill := lab.Fill{Seed: 1, Percent: 10}
	must(t, lab.MakeVolume(t.Context(), vol, 64<<20, fill))
	for i := range s.guests {
		s.ids[i] = fmt.Sprintf("5f6d9a53-0000-4000-8000-00000000000%d", i+1)
		g, err := l.DefineGuest(t.Context(), lab.GuestConfig{Name: fmt.Sprintf("sharer%d", i+1), UUID: s.ids[i], Disks: []lab.Disk{{
			Volume: vol, Serial: "shared", Shareable: true, Fill: fill, Seed: uint64(i + 1), Part: uint64(i), Parts: 2,
		}}})
		must(t, err)
		t.Cleanup(func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
		s.guests[i] = g
		must(t, g.Write("vda", lab.Load{Interval: 2 * time.Millisecond, Depth: 4}))
		must(t, g.Start(t.Context()))
	}
	return s
}

func (s *sharing) read(t *testing.T, id, name string) unitSet {
	t.Helper()
	dirty, err := s.env.conn.DirtyUnits(t.Context(), id, "vda", name)
	must(t, err)
	units := unitSet{}
	for _, r := range dirty {
		for off := r.Offset; off < r.Offset+r.Bytes; off += trackedUnit {
			units[off/trackedUnit] = true
		}
	}
	return units
}

// Two real guests write to one volume without pause while their bitmaps are swapped. Every
// acknowledged write must be in a bitmap of the guest's own process that existed at the write, and
// in no later one.
func TestEveryAcknowledgedWriteIsInTheBitmapsOfItsTime(t *testing.T) {
	leftToTestConformance(t)
	s := newSharing(t)
	const swaps = 6
	name := func(round int) string { return fmt.Sprintf("volferry-test-r%02d", round) }
	before, after := [2][]time.Time{}, [2][]time.Time{}
	for i, g := range s.guests {
		must(t, g.WaitWriting(t.Context(), "vda", 50))
		before[i] = append(before[i], time.Now())
		must(t, s.env.conn.StartTracking(t.Context(), s.ids[i], "vda", name(0), trackedUnit))
		after[i] = append(after[i], time.Now())
	}
	for round := 1; round <= swaps; round++ {
		for i, g := range s.guests {
			must(t, g.WaitWriting(t.Context(), "vda", 100))
			before[i] = append(before[i], time.Now())
			must(t, s.env.conn.SwapTracking(t.Context(), s.ids[i], "vda", name(round-1), name(round), trackedUnit))
			after[i] = append(after[i], time.Now())
		}
	}
	for i, g := range s.guests {
		must(t, g.WaitWriting(t.Context(), "vda", 100))
		must(t, g.Quiesce(t.Context(), "vda")) // nothing is in flight
		must(t, s.env.conn.SwapTracking(t.Context(), s.ids[i], "vda", name(swaps), name(swaps+1), trackedUnit))
	}
	for i, g := range s.guests {
		s.checkRounds(t, i, g.History("vda"), before[i], after[i], name)
		exact(t, s, i, name)
	}
}

// checkRounds compares a guest's bitmaps with its acknowledged writes.
func (s *sharing) checkRounds(t *testing.T, i int, h *lab.History, before, after []time.Time, name func(int) string) {
	t.Helper()
	so, acks := unitSet{}, 0
	for round := range before {
		bits := s.read(t, s.ids[i], name(round))
		maps.Copy(so, bits)
		// After the bitmap's creation at most four acknowledgements can be for writes that began
		// earlier. All later ones are for writes since the start of tracking.
		next := time.Now()
		if round+1 < len(before) {
			next = before[round+1]
		}
		began := afterInFlight(h, after[0])
		want := writtenBy(h, false, func(a lab.Ack) bool { return began[a.Op.Seq] && a.HostTime.Before(next) })
		if missing := want.without(so); len(missing) > 0 {
			t.Errorf("guest %d: units %v were written by the end of round %d, and no bitmap has them", i+1, missing, round)
		}
		may := writtenBy(h, true, func(a lab.Ack) bool { return !a.HostTime.Before(before[round]) })
		if strange := bits.without(may); len(strange) > 0 {
			t.Errorf("guest %d: bitmap %d has units %v, which were written before it was there, or by nobody", i+1, round, strange)
		}
		acks += len(want)
	}
	if acks == 0 {
		t.Errorf("guest %d: nothing was looked at", i+1)
	}
	t.Logf("guest %d: %d acknowledged, %d units in %d bitmaps", i+1, len(h.Acks), len(so), len(before))
}

// afterInFlight returns the operations that began after a moment: all that were acknowledged after
// it, except those that may have been in flight then.
func afterInFlight(h *lab.History, at time.Time) map[uint64]bool {
	began, seen := map[uint64]bool{}, 0
	for _, a := range h.Acks {
		if a.HostTime.Before(at) {
			continue
		}
		if seen++; seen > workload.Window {
			began[a.Op.Seq] = true
		}
	}
	return began
}

// exact lets a guest write between two swaps with nothing in flight at either: the bitmap must have
// exactly the written units.
func exact(t *testing.T, s *sharing, i int, name func(int) string) {
	t.Helper()
	g := s.guests[i]
	known := len(g.History("vda").Acks)
	must(t, g.Write("vda", lab.Load{Interval: time.Millisecond, Depth: 4}))
	must(t, g.WaitWriting(t.Context(), "vda", 60))
	must(t, g.Quiesce(t.Context(), "vda"))
	const last = 90
	old := ""
	all, err := s.env.conn.Tracking(t.Context(), s.ids[i], "vda")
	must(t, err)
	for _, b := range all {
		if b.Recording {
			old = b.Name
		}
	}
	must(t, s.env.conn.SwapTracking(t.Context(), s.ids[i], "vda", old, name(last), trackedUnit))
	h := g.History("vda")
	h.Acks = h.Acks[known:]
	every := func(lab.Ack) bool { return true }
	bits := s.read(t, s.ids[i], old)
	if missing := writtenBy(h, false, every).without(bits); len(missing) > 0 {
		t.Errorf("guest %d: units %v were written between two swaps and are not in the bitmap of that time", i+1, missing)
	}
	if strange := bits.without(writtenBy(h, true, every)); len(strange) > 0 {
		t.Errorf("guest %d: units %v are in the bitmap and were not written in its time", i+1, strange)
	}
	must(t, s.env.conn.StopTracking(t.Context(), s.ids[i], "vda", "volferry-test-"))
	if left, err := s.env.conn.Tracking(t.Context(), s.ids[i], "vda"); err != nil || len(left) != 0 {
		t.Errorf("guest %d: bitmaps %v are left (%v)", i+1, left, err)
	}
	t.Logf("guest %d: %d operations between two swaps, %d units", i+1, len(h.Acks), len(bits))
}

// testDirtyLeftBehind: a daemon that died in a read leaves an export and its server. The next read
// removes both, but not another program's server.
func testDirtyLeftBehind(t *testing.T, env *realEnv) {
	id, _ := env.define(t)
	env.Start(t, id)
	conn := env.conn
	must(t, conn.StartTracking(t.Context(), id, "vda", "a-r0", trackedUnit))
	env.GuestWrite(t, id, "vda", 3, 7)
	must(t, conn.SwapTracking(t.Context(), id, "vda", "a-r0", "a-r1", trackedUnit))
	dirs, err := filepath.Glob(filepath.Join(env.libvirtd.StateDir(), "domain-*-real-"+id[:8]+"*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("directories of the domain: %v, %v", dirs, err)
	}
	about, err := conn.About(t.Context())
	must(t, err)
	node := "libvirt-1-storage"
	if about.Libvirt.Before(hv.Version{Major: 9, Minor: 10}) {
		node = "libvirt-1-format" // a raw image has a separate format node
	}
	qmp := func(text string) { env.virsh(t, "qemu-monitor-command", id, text) }
	serve := func(socket, export string) {
		qmp(fmt.Sprintf(`{"execute":"nbd-server-start","arguments":{"addr":{"type":"unix","data":{"path":%q}}}}`, filepath.Join(dirs[0], socket)))
		qmp(fmt.Sprintf(`{"execute":"block-export-add","arguments":{"type":"nbd","id":%q,"node-name":%q,"name":"x","bitmaps":["a-r0"],"writable":false}}`, export, node))
	}
	serve("volferry-nbd.sock", "volferry-bitmap")
	got, err := conn.DirtyUnits(t.Context(), id, "vda", "a-r0")
	if want := []hv.DirtyRange{{Offset: 0, Bytes: trackedUnit}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("DirtyUnits after a read that was cut off = %v, %v", got, err)
	}
	serve("volferry-nbd.sock", "volferry-bitmap")
	must(t, conn.StopTracking(t.Context(), id, "vda", "a-r0"))

	qmp(fmt.Sprintf(`{"execute":"block-dirty-bitmap-add","arguments":{"node":%q,"name":"a-r0"}}`, node))
	qmp(fmt.Sprintf(`{"execute":"block-dirty-bitmap-disable","arguments":{"node":%q,"name":"a-r0"}}`, node))
	serve("backup.sock", "of-a-backup")
	if _, err := conn.DirtyUnits(t.Context(), id, "vda", "a-r0"); !errors.Is(err, hv.ErrBusy) {
		t.Errorf("DirtyUnits beside a backup = %v, want ErrBusy", err)
	}
	qmp(`{"execute":"block-export-del","arguments":{"id":"of-a-backup"}}`)
	if _, err := conn.DirtyUnits(t.Context(), id, "vda", "a-r0"); !errors.Is(err, hv.ErrBusy) {
		t.Errorf("DirtyUnits beside a server of somebody else = %v, want ErrBusy", err)
	}
	qmp(`{"execute":"nbd-server-stop"}`)
	if _, err := conn.DirtyUnits(t.Context(), id, "vda", "a-r0"); err != nil {
		t.Errorf("DirtyUnits afterwards = %v", err)
	}
}
