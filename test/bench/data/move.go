// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// moveLimit ends a move that does not: a mirror may never catch up with its guest.
const moveLimit = 5 * time.Minute

// warm is how long a guest writes before it is watched: QEMU translates what it runs for the first
// time.
const warm = 500 * time.Millisecond

// measurement is one that is being made.
type measurement struct {
	*stage
	contender
	writer  writer
	setting setting
	volume  volume
	guest   *lab.Guest // nil if nobody has the volume
	qemu    int        // its process, 0 without a guest
	record  record
}

// measure moves a new volume by the contender.
func (s *stage) measure(ctx context.Context, c contender, g group) (record, error) {
	m := &measurement{stage: s, contender: c, writer: g.writer, setting: g.setting}
	err := m.prepare(ctx)
	if err == nil {
		err = m.moveAndCheck(ctx)
	}
	return m.record, errors.Join(err, m.clear(context.WithoutCancel(ctx)))
}

// prepare makes the volume and, for a running guest, the guest.
func (m *measurement) prepare(ctx context.Context) (err error) {
	if m.volume, err = m.makeVolume(ctx, m.fill(), m.destination(m.reflink, m.setting.disks)); err != nil {
		return err
	}
	if m.running {
		err = m.boot(ctx)
	}
	switch {
	case err != nil || !m.managed:
		return err
	case m.running:
		m.volume.managed = m.volume.name + "-" + disk
		_, err = m.site.Ctl(ctx, "instance", "adopt", m.volume.name)
	default:
		m.volume.managed = m.volume.name
		_, err = m.site.Ctl(ctx, "volume", "adopt", m.volume.name, "--pool", m.src.name, "--volume-name", m.volume.name+".raw", "--format", "raw")
	}
	return err
}

// fill is what the volume holds before anybody writes to it.
func (m *measurement) fill() lab.Fill { return lab.Fill{Seed: m.seed, Percent: m.setting.fill} }

func (m *measurement) boot(ctx context.Context) (err error) {
	d := lab.Disk{Volume: lab.Volume{Path: m.volume.src, Format: "raw"}, Fill: m.fill(), Seed: m.seed, Mix: m.writer.mix}
	if m.guest, err = m.site.Libvirtd.DefineGuest(ctx, lab.GuestConfig{Name: m.volume.name, Disks: []lab.Disk{d}, Unconfined: m.unconfined}); err != nil {
		return err
	}
	if err := m.guest.Start(ctx); err != nil {
		return err
	}
	if _, err := m.guest.Disks(ctx); err != nil {
		return err
	}
	if m.writer.load != nil {
		if err := m.guest.Write(disk, *m.writer.load); err != nil {
			return err
		}
		if err := m.guest.WaitWriting(ctx, disk, 1); err != nil {
			return err
		}
		if err := letPass(ctx, warm); err != nil {
			return err
		}
	}
	m.qemu, err = m.qemuOf(m.volume.name)
	return err
}

// moveAndCheck is the measurement itself.
func (m *measurement) moveAndCheck(ctx context.Context) error {
	if err := m.resetPeaks(m.qemu); err != nil {
		return err
	}
	idle, err := m.count(m.qemu, m.volume.to)
	if err != nil {
		return err
	}
	if err := m.watchWriter(ctx); err != nil {
		return err
	}
	before, err := m.count(m.qemu, m.volume.to)
	if err != nil {
		return err
	}
	move, parts, err := m.move(ctx)
	if err != nil {
		return err
	}
	after, err := m.count(m.qemu, m.volume.to)
	if err != nil {
		return err
	}
	if m.record.Cost, err = m.costOf(before, after, m.qemu); err != nil {
		return err
	}
	m.record.Cost.CommandPeakBytes = m.volume.commandPeak
	if err := m.wantClone(move); err != nil {
		return err
	}
	if err := m.watchWriter(ctx); err != nil {
		return err
	}
	if m.managed {
		if err := m.readMigration(ctx, parts); err != nil {
			return err
		}
	}
	if err := m.check(ctx); err != nil {
		return err
	}
	m.record.TotalSeconds = move.seconds()
	if m.writer.load != nil {
		m.record.Cost.QEMUIdleCores = (before.qemu - idle.qemu).Seconds() / before.at.Sub(idle.at).Seconds()
		m.feel(span{idle.at, before.at}, move, parts)
	}
	return nil
}

// wantClone refuses the move of a contender that is to clone, and has not.
func (m *measurement) wantClone(move span) error {
	if !m.reflink {
		return nil
	}
	written := uint64(0)
	if m.guest != nil {
		written = writtenIn(m.guest.History(disk), move)
	}
	return wantClone(m.volume.src, written)
}

// watchWriter is watchGuest, if the guest writes.
func (m *measurement) watchWriter(ctx context.Context) error {
	if m.writer.load == nil {
		return nil
	}
	return m.watchGuest(ctx)
}

// move moves the volume.
func (m *measurement) move(ctx context.Context) (span, phases, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, moveLimit, fmt.Errorf("it did not end within %s", moveLimit))
	defer cancel()
	done := make(chan struct{})
	seen := make(<-chan phases)
	if m.managed {
		seen = m.watch(ctx, m.volume.managed, done)
	}
	s := span{from: time.Now()}
	err := m.moves(ctx, m.stage, &m.volume)
	s.to = time.Now()
	close(done)
	if err != nil {
		return s, nil, errors.Join(err, context.Cause(ctx))
	}
	if !m.managed {
		return s, nil, nil
	}
	parts := <-seen
	if m.volume.overlay != (span{}) {
		parts["overlay"] = m.volume.overlay
	}
	return s, parts, nil
}

// readMigration takes what Volferry says of the move.
func (m *measurement) readMigration(ctx context.Context, parts phases) error {
	doc, err := m.migration(ctx, m.volume.managed)
	if err != nil {
		return err
	}
	m.volume.dst = doc.Dst.Path
	m.record.ExposedSeconds = doc.ExposedSeconds
	if m.running {
		m.record.StallMS = &doc.StallMS
	}
	m.record.PhaseSeconds = make(map[string]float64)
	for name, s := range parts {
		m.record.PhaseSeconds[name] = s.seconds()
	}
	return nil
}

// check reads all of the destination and holds it against the fill and what the guest wrote.
func (m *measurement) check(ctx context.Context) error {
	h := &lab.History{Stream: workload.Stream{Seed: m.seed, Blocks: uint64(m.volume.bytes / workload.BlockSize)}, Fill: m.fill()}
	if m.guest != nil {
		if m.writer.load != nil {
			if err := m.guest.Quiesce(ctx, disk); err != nil {
				return err
			}
		}
		if h = m.guest.History(disk); len(h.Errors) > 0 {
			return fmt.Errorf("%d operations failed in the guest; first: %s", len(h.Errors), h.Errors[0])
		}
	}
	r, err := lab.Check(ctx, lab.Volume{Path: m.volume.dst, Format: "raw"}, h)
	if err != nil {
		return err
	}
	m.record.CheckedBlocks = r.Blocks
	return r.Err()
}

// feel fills in what the guest felt.
func (m *measurement) feel(idle, move span, parts phases) {
	h := m.guest.History(disk)
	m.record.Guest = map[string]window{
		"idle": windowOf(h, idle), "move": windowOf(h, move), "after": windowOf(h, span{move.to, move.to.Add(m.seconds)}),
	}
	m.record.GapMS = make(map[string]float64)
	for name, s := range parts {
		m.record.Guest[name] = windowOf(h, s)
	}
	if s, ok := parts["copy"]; ok {
		m.record.GapMS["start"] = windowOf(h, span{move.from, s.from}).LongestGapMS
	}
	for _, name := range []string{"fold", "verify", "copy"} { // the last of them that there was
		if s, ok := parts[name]; ok {
			from := s.to
			if name == "fold" {
				from = s.from
			}
			m.record.GapMS["switch"] = windowOf(h, span{from, move.to}).LongestGapMS
			break
		}
	}
}

// clear removes what the measurement has made.
func (m *measurement) clear(ctx context.Context) error {
	var errs []error
	forget := func(noun, name string) {
		_, err := m.site.Ctl(ctx, noun, "forget", name)
		errs = append(errs, err)
	}
	if m.volume.managed != "" && m.running {
		forget("instance", m.volume.name)
	}
	if m.guest != nil {
		errs = append(errs, m.guest.Close())
	}
	if m.volume.managed != "" {
		forget("volume", m.volume.managed)
	}
	return errors.Join(append(errs, m.empty())...)
}
