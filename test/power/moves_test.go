// SPDX-License-Identifier: Apache-2.0

package power

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// volumeBytes is small: it is read at every cut.
const volumeBytes = 8 << 20

// move is a move that is recorded.
type move struct {
	name string
	// prepare makes a volume, and a guest that has it where the move is of one.
	prepare func(t *testing.T, h *host, d lab.Disk) subject
	// make makes the move, from the first command to the last.
	make func(t *testing.T, h *host, s subject) api.Migration
	// end is the command that ends the move where a cut was before it was asked for.
	end string
	// unbooted: the host is not booted after a cut. A mirror waits a minute for a guest that is off
	// before it comes to its end.
	unbooted bool
}

// subject is what is moved.
type subject struct {
	lab.Disk
	volume   string
	instance string
	guest    *lab.Guest // nil if there is none
	written  *written   // what is written into the overlay of one that is stopped
	forget   func()     // ends what the lab has of the guest
}

// define defines a guest for the volume, and puts it under Volferry's care.
func define(t *testing.T, h *host, d lab.Disk) subject {
	t.Helper()
	g, err := h.Libvirtd.DefineGuest(t.Context(), lab.GuestConfig{Name: "g", Disks: []lab.Disk{d}})
	must(t, err)
	forget := sync.OnceFunc(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(forget)
	h.ctl(t, "instance", "adopt", "g")
	return subject{Disk: d, volume: "g-vda", instance: "g", guest: g, forget: forget}
}

// history is what is known of the volume at a moment.
func (s subject) history(at time.Time) *lab.History {
	switch {
	case s.written != nil:
		return until(&s.written.History, at)
	case s.guest != nil:
		return until(s.guest.History("vda"), at)
	default:
		return untouched(s.Disk)
	}
}

// untouched is the history of a volume that nobody ever wrote to.
func untouched(d lab.Disk) *lab.History {
	return &lab.History{Stream: workload.Stream{Seed: d.Seed, Blocks: volumeBytes / workload.BlockSize, Mix: workload.DefaultMix}, Fill: d.Fill}
}

// disk makes a filled volume in pool a.
func (h *host) disk(t *testing.T) lab.Disk {
	t.Helper()
	d := lab.Disk{
		Volume: lab.Volume{Path: filepath.Join(h.pool("a"), "data.img"), Format: "raw"},
		Serial: "data", Seed: 1, Fill: lab.Fill{Seed: 1, Percent: 30},
	}
	must(t, lab.MakeVolume(t.Context(), d.Volume, volumeBytes, d.Fill))
	return d
}

// unattached is a volume that no instance has.
func unattached(t *testing.T, h *host, d lab.Disk) subject {
	t.Helper()
	h.ctl(t, "volume", "adopt", "data", "--path", d.Path, "--format", "raw")
	return subject{Disk: d, volume: "data"}
}

// stopped is the volume of a guest that is off. What a run of it would have left is written
// into the overlay by qemu-io.
func stopped(t *testing.T, h *host, d lab.Disk) subject {
	t.Helper()
	s := define(t, h, d)
	s.written = &written{History: *untouched(d)}
	s.written.Stream.Mix = workload.Mix{Large: 25, Zero: 5, Flush: 10}
	return s
}

// running is the volume of a guest that writes.
func running(t *testing.T, h *host, d lab.Disk) subject {
	t.Helper()
	s := define(t, h, d)
	must(t, s.guest.Start(t.Context()))
	must(t, s.guest.Write("vda", lab.Load{Interval: 20 * time.Millisecond, Depth: 4}))
	must(t, s.guest.WaitWriting(t.Context(), "vda", 50))
	return s
}

// written is what was written into the overlay of a stopped guest.
type written struct {
	lab.History
	seq uint64
}

// write writes to the overlay, as a run of the guest would, and ends with a flush.
func (w *written) write(t *testing.T, h *host) {
	t.Helper()
	overlays, err := filepath.Glob(filepath.Join(h.overlays(), "*"))
	if err != nil || len(overlays) != 1 {
		t.Fatalf("not one overlay: %v, %v", overlays, err)
	}
	const enough = 30
	args := []string{"-f", "qcow2", "-t", "none"}
	session := lab.Session{Base: w.seq, Depth: 1, Ended: true}
	var ops []workload.Op
	for o := w.Stream.At(w.seq); ; o = w.Stream.At(w.seq) {
		w.seq++
		ops = append(ops, o)
		args = append(args, "-c", w.command(t, h, o))
		if o.Flush {
			args = append(args, "-c", "flush")
			if len(ops) >= enough {
				break
			}
		}
	}
	if out, err := exec.CommandContext(t.Context(), "qemu-io", append(args, overlays[0])...).CombinedOutput(); err != nil || strings.Contains(string(out), "rror") {
		t.Fatalf("write to the overlay: %v\n%s", err, out)
	}
	now := time.Now()
	for _, o := range ops {
		w.Acks = append(w.Acks, lab.Ack{Op: o, HostTime: now})
	}
	session.Acked = uint64(len(ops))
	w.Sessions = append(w.Sessions, session)
}

// command is an operation in the words of qemu-io.
func (w *written) command(t *testing.T, h *host, o workload.Op) string {
	t.Helper()
	offset, length := o.Block*workload.BlockSize, o.Count*workload.BlockSize
	if o.Kind != workload.Write {
		return fmt.Sprintf("write -z %d %d", offset, length)
	}
	data := make([]byte, length)
	for b := range o.Count {
		workload.PutRecord(data[b*workload.BlockSize:], w.Stream.Seed, o.Seq, o.Block+b)
	}
	file := filepath.Join(h.dir, fmt.Sprintf("op-%d", o.Seq))
	must(t, os.WriteFile(file, data, 0o600))
	return fmt.Sprintf("write -s %s %d %d", file, offset, length)
}

// clone is the volume of a guest that writes, a linked clone of another image that is in the pool.
func clone(t *testing.T, h *host, d lab.Disk) subject {
	t.Helper()
	over := d
	over.Path, over.Format, over.OpenEnd = filepath.Join(h.pool("a"), "clone.qcow2"), "qcow2", true
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-F", d.Format, "-b", d.Path, over.Path).CombinedOutput(); err != nil {
		t.Fatalf("make a linked clone: %v\n%s", err, out)
	}
	return running(t, h, over)
}

// whole is a move by one command, with these flags.
func whole(flags ...string) func(t *testing.T, h *host, s subject) api.Migration {
	return func(t *testing.T, h *host, s subject) api.Migration {
		t.Helper()
		return get[api.Migration](t, h, "migration", append([]string{"volume", "migrate", s.volume, "--to-pool", "b", "--delete-source"}, flags...)...)
	}
}

// inSteps are a move in steps, with writes between them where the guest is off, and the last
// step a complete or a cancel. The flags are those of its start.
func inSteps(last string, flags ...string) func(t *testing.T, h *host, s subject) api.Migration {
	return func(t *testing.T, h *host, s subject) api.Migration {
		t.Helper()
		write := func() {
			if s.written != nil {
				s.written.write(t, h)
			} else {
				must(t, s.guest.WaitWriting(t.Context(), "vda", 40))
			}
		}
		attachment := get[api.Volume](t, h, "volume", "volume", "show", s.volume).Attachments[0].ID
		m := get[api.Migration](t, h, "migration", append([]string{"migration", "start", attachment, "--to-pool", "b"}, flags...)...)
		write()
		m = get[api.Migration](t, h, "migration", "migration", "copy", m.SrcAttachmentID)
		write()
		return get[api.Migration](t, h, "migration", endArgs(m, last)...)
	}
}

// endArgs are the command line of the last step of a migration.
func endArgs(m api.Migration, last string) []string {
	if last == "cancel" {
		return []string{"migration", "cancel", m.SrcAttachmentID}
	}
	return []string{"migration", "complete", m.SrcAttachmentID, m.DstAttachmentID}
}

// stoppedMove is the place in moves of the one of a stopped guest.
const stoppedMove = 1

// moves are the moves that are recorded.
var moves = []move{
	{name: "a volume without an instance", prepare: unattached, make: whole()},
	{name: "a stopped guest", prepare: stopped, make: inSteps("complete"), end: "complete"},
	{name: "a stopped guest, cancelled", prepare: stopped, make: inSteps("cancel"), end: "cancel"},
	{name: "a running guest", prepare: running, make: inSteps("complete"), end: "complete"},
	{name: "a running guest, cancelled", prepare: running, make: inSteps("cancel"), end: "cancel"},
	{name: "a running guest, to qcow2", prepare: running, make: inSteps("complete", "--to-format", "qcow2"), end: "complete"},
	{name: "a running guest, by mirror", prepare: running, make: whole("--method", "mirror", "--verify", "full"), unbooted: true},
	{name: "a linked clone over its base images", prepare: clone, make: inSteps("complete", "--keep-base"), end: "complete"},
}

// record makes a move, with all that it writes on the tape, and cuts the power.
func (h *host) record(t *testing.T, v move) (*recording, []cutPoint) {
	t.Helper()
	s := v.prepare(t, h, h.disk(t))
	must(t, h.tape.Record())
	r := &recording{move: v, m: v.make(t, h, s), subject: s}
	entries, err := h.tape.Stop()
	must(t, err)
	if s.forget != nil {
		s.forget()
	}
	want := api.MigrationCompleted
	if v.end == "cancel" {
		want = api.MigrationCancelled
	}
	if r.m.State != want || r.m.Error != nil {
		t.Fatalf("the move ended as %s: %+v", r.m.State, r.m)
	}
	must(t, h.powerOff())
	return r, cutPoints(entries)
}
