// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

const plainStepPercent = 10

const (
	clearLine   = "\r\x1b[K"
	minBarCells = 10
	maxBarCells = 30
)

// Progress shows a migration as one redrawn line, or as plain lines for a log. It is not safe for
// concurrent use.
type Progress struct {
	w io.Writer
	// width returns the terminal's width, at every redraw; nil for plain lines.
	width func() int

	lastLine string
	measured measured

	drawn       bool
	lastPhase   string
	lastPercent int
	lastState   api.MigrationState
}

// NewBar returns a Progress that redraws one line of a terminal.
func NewBar(w io.Writer, width func() int) *Progress {
	return &Progress{w: w, width: width}
}

// NewPlain returns a Progress that writes a line at each phase and about every ten percent.
func NewPlain(w io.Writer) *Progress {
	return &Progress{w: w}
}

// Update shows the state of m. It ignores errors of the writer.
func (p *Progress) Update(m *api.Migration) {
	left := p.measured.left(m, time.Now())
	if p.width != nil {
		_, _ = io.WriteString(p.w, clearLine+Cell(barLine(m, left, p.width())))
		p.drawn = true
		return
	}
	phase, percent := phaseOf(m), percentOf(m)
	if phase == p.lastPhase && percent < p.lastPercent+plainStepPercent {
		return
	}
	if phase == string(m.State) && m.State == p.lastState {
		return // between two phases; their own lines are enough
	}
	p.lastPhase, p.lastPercent, p.lastState = phase, percent-percent%plainStepPercent, m.State
	line := Cell(nameOf(m)) + ": " + strings.Join(append([]string{phase}, amounts(m, left)...), "  ")
	if line != p.lastLine {
		Line(p.w, "%s", line)
	}
	p.lastLine = line
}

// Clear removes the redrawn line, so that other text can be written.
func (p *Progress) Clear() {
	if p.drawn {
		_, _ = io.WriteString(p.w, clearLine)
		p.drawn = false
	}
}

// barLine returns name, phase, bar and amounts in at most width-1 cells, because a terminal wraps
// at its last cell. To fit, it omits the bar first, then amounts from the end.
func barLine(m *api.Migration, left time.Duration, width int) string {
	parts := append([]string{nameOf(m) + ": " + phaseOf(m)}, amounts(m, left)...)
	line := strings.Join(parts, "  ")
	room := width - 1
	if bar := room - utf8.RuneCountInString(line) - columnGap; bar >= minBarCells && len(parts) > 1 {
		parts = append([]string{parts[0], drawBar(percentOf(m), min(bar, maxBarCells))}, parts[1:]...)
		return strings.Join(parts, "  ")
	}
	for len(parts) > 2 && utf8.RuneCountInString(strings.Join(parts, "  ")) > room {
		parts = parts[:len(parts)-1]
	}
	return cut(strings.Join(parts, "  "), max(room, 1))
}

func drawBar(percent, cells int) string {
	inner := cells - 2
	done := inner * percent / 100
	return "[" + strings.Repeat("#", done) + strings.Repeat(".", inner-done) + "]"
}

func amounts(m *api.Migration, left time.Duration) []string {
	if m.BytesTotal <= 0 || !movesBytes(m) {
		return nil
	}
	out := []string{fmt.Sprintf("%3d%%", percentOf(m))}
	if m.Phase == "fold" {
		return out // QEMU counts the whole volume, but copies only the overlay's data
	}
	out = append(out, humanize.Bytes(m.BytesDone)+" of "+humanize.Bytes(m.BytesTotal))
	if m.RateBytesPerSecond > 0 && m.BytesDone < m.BytesTotal {
		out = append(out, Rate(m.RateBytesPerSecond))
		if left >= time.Second {
			out = append(out, "ETA "+Duration(left.Round(time.Second)))
		}
	}
	return out
}

// Percent returns the copied part of m's volume, "-" if it is unknown.
func Percent(m *api.Migration) string {
	if m.BytesTotal <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", percentOf(m))
}

func percentOf(m *api.Migration) int {
	if m.BytesTotal <= 0 {
		return 0
	}
	if m.State == api.MigrationCompleted {
		return 100 // when the host is done, the registry has no count
	}
	return int(min(100, max(0, float64(m.BytesDone)/float64(m.BytesTotal)*100)))
}

func phaseOf(m *api.Migration) string {
	if movesBytes(m) || strings.HasPrefix(m.Phase, "waiting ") || !m.State.Final() && slices.Contains(waits, m.Phase) {
		return m.Phase
	}
	return string(m.State)
}

var waits = []string{"saving", "restoring"}

func movesBytes(m *api.Migration) bool {
	return !m.State.Final() && slices.Contains([]string{"clone", "offload", "copy", "flush", "verify", "fold", "copying"}, m.Phase)
}

func nameOf(m *api.Migration) string {
	if m.VolumeName != "" {
		return m.VolumeName
	}
	return m.VolumeID
}
