// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"fmt"
	"strings"
	"testing"
)

// event is one step of a model: the action, the host, and the block. host and block are -1 if there
// is none.
type event struct {
	what        string
	host, block int
}

func (e event) String() string {
	text := e.what
	if e.host >= 0 {
		text = fmt.Sprintf("%c: %s", 'A'+e.host, text)
	}
	if e.block >= 0 {
		text += fmt.Sprintf(" %d", e.block)
	}
	return text
}

// system is a model for explore.
type system[S comparable] interface {
	// start is the first state.
	start() S
	// next calls emit with every event that may happen in s, and the state after it.
	next(s S, emit func(event, S))
	// broken returns the claim that does not hold in s, "" if all hold. It is called for every
	// state; final is true if no event may happen in s.
	broken(s S, final bool) string
}

type result struct {
	states, finals int
	// broken is the claim that does not hold after trace, "" if all claims hold. No shorter trace
	// breaks one.
	broken string
	trace  []event
}

// maxStates bounds a search that has become too long.
const maxStates = 6_000_000

// explore visits every state of a system, breadth first, until one breaks a claim.
func explore[S comparable](t *testing.T, sys system[S]) result {
	t.Helper()
	type node struct {
		state  S
		parent int32
		by     event
	}
	nodes := []node{{state: sys.start(), parent: -1}}
	known := map[S]struct{}{nodes[0].state: {}}
	var r result
	for i := 0; i < len(nodes); i++ {
		s, final := nodes[i].state, true
		sys.next(s, func(by event, after S) {
			final = false
			if _, seen := known[after]; !seen {
				known[after] = struct{}{}
				nodes = append(nodes, node{after, int32(i), by}) //nolint:gosec // below maxStates
			}
		})
		if final {
			r.finals++
		}
		if r.broken = sys.broken(s, final); r.broken != "" {
			for at := i; nodes[at].parent >= 0; at = int(nodes[at].parent) {
				r.trace = append([]event{nodes[at].by}, r.trace...)
			}
			break
		}
		if len(nodes) > maxStates {
			t.Fatalf("more than %d states", maxStates)
		}
	}
	r.states = len(nodes)
	return r
}

// wantHolds requires that the claims of the system hold in every state.
func wantHolds[S comparable](t *testing.T, sys system[S]) {
	t.Helper()
	r := explore(t, sys)
	if r.broken != "" {
		t.Fatalf("%s, after %d events:\n%s", r.broken, len(r.trace), r)
	}
	if r.finals == 0 {
		t.Fatalf("none of %d states is an end", r.states)
	}
	t.Logf("%d states, %d ends: every claim holds", r.states, r.finals)
}

// wantBroken requires that explore finds that the claim does not hold.
func wantBroken[S comparable](t *testing.T, sys system[S], claim string) {
	t.Helper()
	r := explore(t, sys)
	if !strings.Contains(r.broken, claim) {
		t.Fatalf("%d states: found %q, not %q\n%s", r.states, r.broken, claim, r)
	}
	t.Logf("%s, after %d events (%d states):\n%s", r.broken, len(r.trace), r.states, r)
}

func (r result) String() string {
	lines := make([]string, len(r.trace))
	for i, e := range r.trace {
		lines[i] = "  " + e.String()
	}
	return strings.Join(lines, "\n")
}
