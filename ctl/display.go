// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
)

// display is the progress of one piece of work as --progress wants it. Safe for
// concurrent use.
type display struct {
	mu sync.Mutex
	// bar is nil where nothing is drawn.
	bar *render.Progress
	// lines takes NDJSON; nil where there is none.
	lines  io.Writer
	stderr io.Writer
	// shown is the state in the last line.
	shown api.MigrationState
}

func (s *session) newDisplay() *display {
	d := &display{stderr: s.stderr}
	terminal := terminalWidth(s.stderr) > 0
	switch {
	case s.progress == progressJSON:
		d.lines = s.stdout
	case s.quiet || s.progress == progressNone:
	case s.progress == progressAuto && terminal:
		d.bar = render.NewBar(s.stderr, func() int { return terminalWidth(s.stderr) })
	default:
		d.bar = render.NewPlain(s.stderr)
	}
	return d
}

func (d *display) event(e api.Event) {
	if e.Migration != nil {
		d.migration(e.Migration)
	}
}

func (d *display) migration(m *api.Migration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.bar.Update(m)
	}
	if d.jsonLine(migrationLine{SchemaVersion: api.SchemaVersion, Migration: m}) {
		d.shown = m.State
	}
}

// jsonLine writes doc as one line where --progress json asks for lines, and says
// whether it does.
func (d *display) jsonLine(doc any) bool {
	if d.lines == nil {
		return false
	}
	// Nobody is told of an error: a reader that went away gets a SIGPIPE.
	_ = render.JSONLine(d.lines, doc)
	return true
}

// draws says whether progress is shown to a person.
func (d *display) draws() bool { return d.bar != nil }

// ended makes sure that the last line of NDJSON shows how the migration ended.
func (d *display) ended(m *api.Migration) {
	if d.lines != nil && m != nil && m.State != d.shown {
		d.migration(m)
	}
}

// migrationLine is one line of --progress json: what 'migration show -o json'
// prints, in one line.
type migrationLine struct {
	SchemaVersion int            `json:"schema_version"`
	Migration     *api.Migration `json:"migration"`
}

// lost says once that the other side is away. It is said under --quiet too:
// a script that hangs for a minute should show why.
func (d *display) lost(err error) {
	d.say(fmt.Sprintf("%s: %v\nWaiting up to %s for it to come back.", programName, err, render.Duration(patience)))
}

// say writes a line of talk, over the bar if there is one.
func (d *display) say(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.bar.Clear()
	}
	render.Line(d.stderr, "%s", line)
}

func (d *display) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.bar.Clear()
	}
}
