// SPDX-License-Identifier: Apache-2.0

package power

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/volferry/volferry/test/power/tape"
)

// cutPoint is a moment at which the power may be cut: after an entry of the tape.
type cutPoint struct {
	after int
	at    time.Time
	flush bool // the entry is a flush of a disk of the host
}

// cutPoints are all of them, the first before anything was written.
func cutPoints(entries []tape.Entry) []cutPoint {
	if len(entries) == 0 {
		return nil
	}
	points := []cutPoint{{at: entries[0].At, flush: true}}
	for i, e := range entries {
		points = append(points, cutPoint{after: i + 1, at: e.At, flush: e.Kind == tape.Flush && e.Disk != 0})
	}
	return points
}

// every is how many of the points between two flushes are tried: one in so many.
func every() int {
	n, err := strconv.Atoi(os.Getenv("VOLFERRY_POWER"))
	if err != nil || n < 1 {
		return 10
	}
	return n
}

// chosen reports whether a move is tried on a layout. Each is on all if it is cut at all points,
// and otherwise on two, so that all layouts have their turn.
func chosen(move, layout int) bool {
	const turns = 3
	return every() == 1 || (move+layout)%turns == 0
}

func TestPowerCutAtAnyWriteOfAMoveLosesNothingThatWasFlushed(t *testing.T) {
	for i, v := range moves {
		t.Run(v.name, func(t *testing.T) {
			for k, l := range layouts {
				t.Run(l.String(), func(t *testing.T) {
					if !chosen(i, k) {
						t.Skip("SKIPPED: left to POWER=1")
					}
					cutsOf(t, l, v)
				})
			}
		})
	}
}

// cutsOf records a move and cuts the power at every flush of it, and between.
func cutsOf(t *testing.T, l layout, v move) {
	h := newHost(t, l, "")
	r, points := h.record(t, v)
	begin := time.Now()
	found := h.replay(t, r, points, replayed{boots: !v.unbooted, most: 10})
	for _, what := range found.wrong {
		t.Error(what)
	}
	t.Logf("%d entries, %d cuts in %v, %d of them booted; the journal was at:", len(points)-1, found.cuts, time.Since(begin).Round(time.Second), found.booted)
	for _, where := range slices.Sorted(maps.Keys(found.seen)) {
		t.Logf("%5d %s", found.seen[where], where)
	}
}

// replayed says what is done after cuts, and what came of it.
type replayed struct {
	boots bool // the host, after one cut for each last record of the journal
	most  int  // so many wrong ones are enough

	cuts, booted int
	wrong        []string
	seen         map[string]int // how far the journal was, and how often
}

// replay cuts the power at the points.
func (h *host) replay(t *testing.T, r *recording, points []cutPoint, out replayed) replayed {
	t.Helper()
	out.seen = map[string]int{}
	for i, p := range points {
		if !p.flush && i%every() != 0 && i != len(points)-1 {
			continue
		}
		for _, loss := range []tape.Loss{tape.Lost, tape.Torn} {
			out.cuts++
			where, err := h.lookAfter(t, r, p, loss)
			if err == nil && out.boots && out.seen[where] == 0 {
				out.booted++
				err = h.recoverAfter(t, r, p, loss)
			}
			out.seen[where]++
			if err == nil {
				continue
			}
			out.wrong = append(out.wrong, fmt.Sprintf("cut after entry %d of %d, %s, with the journal at %q: %v", p.after, len(points)-1, loss, where, err))
			if len(out.wrong) >= out.most {
				return out
			}
		}
	}
	return out
}

// cut has the disks of the host as they were after a point, and that of the registry if it is
// wanted.
func (h *host) cut(p cutPoint, loss tape.Loss, withRegistry bool) error {
	cut := tape.Cut{After: p.after, Seed: uint64(p.after)}
	for _, d := range h.layout.disks() {
		of := loss
		if d.Name == registryDisk {
			of = tape.Kept
		}
		cut.Loss = append(cut.Loss, of)
	}
	if err := h.tape.CutAt(cut); err != nil {
		return err
	}
	return h.mount(func(name, dir string) error {
		if name == registryDisk && !withRegistry {
			return nil
		}
		return h.tape.MountCut(name, dir)
	})
}

// lookAfter looks at the disks after a cut.
func (h *host) lookAfter(t *testing.T, r *recording, p cutPoint, loss tape.Loss) (string, error) {
	t.Helper()
	if err := h.cut(p, loss, false); err != nil {
		t.Fatal(err)
	}
	where, err := h.look(t.Context(), r, p.at)
	must(t, h.tape.Unmount())
	return where, err
}
