// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"io"
	"sync"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
)

// Display shows the progress of one request's work. It is safe for concurrent use.
type Display struct {
	mu     sync.Mutex
	bar    *render.Progress
	lines  io.Writer
	stderr io.Writer
	shown  api.MigrationState
	noted  bool
}

// NewDisplay returns the display for the user's --progress and --quiet.
func (s *Session) NewDisplay() *Display {
	d := &Display{stderr: s.Stderr}
	terminal := TerminalWidth(s.Stderr) > 0
	switch {
	case s.Progress == ProgressJSON:
		d.lines = s.Stdout
	case s.Quiet || s.Progress == ProgressNone:
	case s.Progress == ProgressAuto && terminal:
		d.bar = render.NewBar(s.Stderr, func() int { return TerminalWidth(s.Stderr) })
	default:
		d.bar = render.NewPlain(s.Stderr)
	}
	return d
}

// ShowEvent shows the migration of an event, if it has one.
func (d *Display) ShowEvent(e api.Event) {
	if e.Migration != nil {
		d.ShowMigration(e.Migration)
	}
}

// ShowMigration shows the progress of a migration. It shows the migration's remark once, before
// the end.
func (d *Display) ShowMigration(m *api.Migration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil && m.Remark != "" && !m.State.Final() && !d.noted {
		d.noted = true
		d.bar.Clear()
		render.Line(d.stderr, "Note: %s.", m.Remark)
	}
	if d.bar != nil {
		d.bar.Update(m)
	}
	if d.JSONLine(migrationLine{SchemaVersion: api.SchemaVersion, Migration: m}) {
		d.shown = m.State
	}
}

// JSONLine writes doc as one line if --progress json was given, and reports whether it was.
func (d *Display) JSONLine(doc any) bool {
	if d.lines == nil {
		return false
	}
	// Ignore the error: if the reader has gone, the process gets SIGPIPE.
	_ = render.JSONLine(d.lines, doc)
	return true
}

// Draws reports whether the display draws progress for a person.
func (d *Display) Draws() bool { return d.bar != nil }

// Finish ensures that the last line of NDJSON has the migration's final state.
func (d *Display) Finish(m *api.Migration) {
	if d.lines != nil && m != nil && m.State != d.shown {
		d.ShowMigration(m)
	}
}

type migrationLine struct {
	SchemaVersion int            `json:"schema_version"`
	Migration     *api.Migration `json:"migration"`
}

// Outage reports that the other side does not answer, even with --quiet: a script may hang for a
// minute.
func (d *Display) Outage(err error) {
	d.say(fmt.Sprintf("%s: %v\nWaiting up to %s for it to come back.", Program, err, render.Duration(outageTimeout)))
}

func (d *Display) say(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.bar.Clear()
	}
	render.Line(d.stderr, "%s", line)
}

// Close removes the progress bar.
func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.bar.Clear()
	}
}
