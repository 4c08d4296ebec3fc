// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

const (
	// idleSpan before a migration is what its stalls are compared with.
	idleSpan = time.Second
	// stallMargin is how much later than the daemon's word on a moment the
	// guest's next acknowledgement may come.
	stallMargin = 300 * time.Millisecond
)

// worstStall is more than any stall may be (longestStall), also without hardware
// virtualisation. A tenth of it is the aim.
var worstStall = lab.Limit(2 * time.Second)

// span is a time from one moment to another.
type span struct{ from, to time.Time }

// idle is the time before a migration in which the guest did nothing but write.
func (g *guest) idle(until time.Time) span {
	from := until.Add(-idleSpan)
	if from.Before(g.writing) {
		from = g.writing
	}
	return span{from, until}
}

// stalls has a line for each migration of a guest that ran.
var stalls struct {
	sync.Mutex
	lines []string
}

// TestMain prints what the guests have seen, whatever became of the tests.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		load.Interval = shortInterval
	}
	go waits.watch()
	code := m.Run()
	if err := errors.Join(closeIdle(), closeCeph()); err != nil {
		fmt.Println(err)
		code = 1
	}
	if len(stalls.lines) > 0 {
		fmt.Println("How long guests could not complete a write:")
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "migration\tformats\tidle, guest\tstart, host\tstart, guest\tswitch, host\tswitch, guest")
		for _, line := range stalls.lines {
			fmt.Fprintln(w, line)
		}
		_ = w.Flush()
	}
	os.Exit(code)
}

// longestGap is the longest time between two acknowledgements that reaches into
// the span, as far as it is over.
func longestGap(h *lab.History, s span) time.Duration {
	if now := time.Now(); s.to.After(now) {
		s.to = now
	}
	return h.Between(s.from, s.to).LongestGap
}

// noteStalls records how long the guest could not complete a write at the start
// and at the switch: by the host's measure, and as the longest time between two
// acknowledgements. A guest that did not run all the time is not asked.
func (g *guest) noteStalls(t *testing.T, target string, m api.Migration, idle, start, end span) {
	t.Helper()
	byMirror := m.Method == "mirror" // it has no switch at its start
	if (m.StallMS.Start == nil && !byMirror) || m.StallMS.Switch == nil {
		return // it did not run at one of them
	}
	h := g.History(target)
	atStart, atSwitch := longestGap(h, start), longestGap(h, end)
	first := "-"
	if !byMirror {
		first = ms(*m.StallMS.Start)
	}
	line := fmt.Sprintf("%s\t%s to %s\t%s\t%s\t%s\t%s\t%s", strings.TrimPrefix(t.Name(), "Test"), m.Src.Format, m.Dst.Format,
		inMS(longestGap(h, idle)), first, inMS(atStart), ms(*m.StallMS.Switch), inMS(atSwitch))
	t.Log("stalls: " + strings.ReplaceAll(line, "\t", ", "))
	stalls.Lock()
	defer stalls.Unlock()
	stalls.lines = append(stalls.lines, line)
	if onStorage() {
		return // where time says nothing
	}
	if first, last := longestStall(h, start), longestStall(h, end); first > worstStall || last > worstStall {
		t.Errorf("the guest could not write for %v at the start and %v at the switch, in which processors were free; that is too long", first, last)
	}
}

func ms(v float64) string { return fmt.Sprintf("%.0f ms", v) }

func inMS(d time.Duration) string { return ms(d.Seconds() * 1000) }
