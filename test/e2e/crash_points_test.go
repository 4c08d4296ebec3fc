// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/crash"
)

// leftToTestE2E skips a test that make test has no time for.
func leftToTestE2E(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: left to make test-e2e")
	}
}

// The daemon's variables: the points at which it ends itself, and the file that
// takes the names of the points that it passes.
const (
	faultPoints = "VOLFERRY_FAULT"
	faultLog    = "VOLFERRY_FAULT_LOG"
)

// point is a place between two records or effects of an op, as the daemon calls
// it: KIND.STEP.MOMENT, or KIND.finished.
type point string

// kind is the op kind.
func (p point) kind() string {
	kind, _, _ := strings.Cut(string(p), ".")
	return kind
}

// step is the step, "finished" behind the last one.
func (p point) step() string { return strings.Split(string(p), ".")[1] }

// atEffect: on one side of the point the step has had no effect on the world,
// on the other it may have, or has.
func (p point) atEffect() bool { return p.isAfter("started") || p.isAfter("do") }

// isAfter reports whether the moment is that after what the word says.
func (p point) isAfter(word string) bool { return strings.HasSuffix(string(p), ".after_"+word) }

// atStart: the step has begun.
func (p point) atStart() bool { return p.isAfter("started") }

// beforeTheSwitch: the registry has been asked all that is asked before the switch. A fold asks
// once more who has dst before it begins to write there.
func (p point) beforeTheSwitch() bool {
	switch p.step() {
	case "mirror":
		return p.kind() == "migration_complete" && p.isAfter("do")
	case "ready": // of a mirror
		return p.isAfter("started")
	}
	return false
}

// inPause: the point is in the switch, from when the guest has been paused to
// when it has been resumed.
func (p point) inPause() bool {
	switch s := p.step(); {
	case s == "pause":
		return p.isAfter("do") || p.isAfter("succeeded")
	case s == "drain", s == "compare", s == "pivot", strings.HasPrefix(s, "name_"):
		return true
	default:
		return s == "resume" && !p.isAfter("succeeded")
	}
}

// points are places on the way of one op or several, in the order of the way.
type points []point

// of are those of ops whose kind begins like this.
func (ps points) of(kind string) points {
	return ps.where(func(p point) bool { return strings.HasPrefix(p.kind(), kind) })
}

func (ps points) where(is func(point) bool) points {
	return slices.DeleteFunc(slices.Clone(ps), func(p point) bool { return !is(p) })
}

// onlyPaused: the guest has been paused, and nothing else has been done since.
func (p point) onlyPaused() bool { return p.step() == "pause" || p.step() == "drain" }

// chosen are those that this run of the tests strikes at. It says which are left
// out.
func (ps points) chosen(t *testing.T) points {
	t.Helper()
	if len(ps) == 0 {
		t.Fatal("no point was passed")
	}
	if crash.Every() {
		return ps
	}
	stride, always := 3, point.inPause
	others := "make test-crash"
	if testing.Short() {
		stride, always = 7, func(p point) bool { return p.inPause() && !p.onlyPaused() }
		others = "make test-e2e and " + others
	}
	some, n := points{}, 0
	for _, p := range ps.where(func(p point) bool { return p.isAfter("do") }) {
		if n++; always(p) || n%stride == 1 {
			some = append(some, p)
		}
	}
	t.Logf("%d of %d points; the others are left to %s", len(some), len(ps), others)
	return some
}

// pointLog is the file in which the daemon notes the points that it passes.
func (h *host) pointLog() string { return filepath.Join(h.Dir, "points") }

// watchPoints has the daemon note the points from now on.
func (h *host) watchPoints(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(h.pointLog()); err != nil {
		t.Fatal(err)
	}
	h.restartDaemon(t, faultLog+"="+h.pointLog())
}

// passed are the points that the daemon noted.
func (h *host) passed(t *testing.T) points {
	t.Helper()
	return noted(t, h.pointLog())
}

// noted are the points in a log, each once.
func noted(t *testing.T, log string) points {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var ps points
	for line := range strings.Lines(string(text)) {
		if p := point(strings.TrimSpace(line)); !slices.Contains(ps, p) {
			ps = append(ps, p)
		}
	}
	return ps
}

// restartDaemon puts another daemon in the place of this one, with these
// variables in its environment.
func (h *host) restartDaemon(t *testing.T, env ...string) {
	t.Helper()
	h.KillDaemon()
	if err := h.StartDaemon(t.Context(), env...); err != nil {
		t.Fatal(err)
	}
}
