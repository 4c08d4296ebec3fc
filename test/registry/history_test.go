// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is what one client asked and was answered, in its order. It is of one
// goroutine.
type history struct {
	client int
	begin  time.Time
	done   []porcupine.Operation
}

// add records a call that was made at a time and has its answer now. One whose
// outcome is unknown may be done at any time after.
func (h *history) add(called time.Time, c call, a answer) {
	returned := int64(math.MaxInt64)
	if !a.unknown {
		returned = time.Since(h.begin).Nanoseconds()
	}
	h.done = append(h.done, porcupine.Operation{
		ClientId: h.client, Input: c, Call: called.Sub(h.begin).Nanoseconds(), Output: a, Return: returned,
	})
}

// merged is what all of them asked in a round.
func merged(all []*history) []porcupine.Operation {
	var out []porcupine.Operation
	for _, h := range all {
		out = append(out, h.done...)
	}
	return out
}

// ofVolume are the operations that matter to a volume: its own, and those that
// are about hosts.
func ofVolume(all []porcupine.Operation, volume string) []porcupine.Operation {
	return slices.DeleteFunc(slices.Clone(all), func(o porcupine.Operation) bool {
		of := o.Input.(call).volume //nolint:errcheck // it is always one
		return of != "" && of != volume
	})
}

// checkTimeout bounds the search for an order of one volume's operations.
const checkTimeout = 2 * time.Minute

// checkLinearizable returns an error if there is no order of the operations in
// which one after the other the registry could have answered so.
func checkLinearizable(first world, operations []porcupine.Operation) error {
	result, info := porcupine.CheckOperationsVerbose(modelOf(first), operations, checkTimeout)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("no order of %d operations was found within %s, nor that there is none", len(operations), checkTimeout)
	default:
		return fmt.Errorf("there is no order of %d operations that explains the answers:\n%s", len(operations), explain(first, info, operations))
	}
}

// explain shows the longest order that was found, and what did not fit after it.
func explain(first world, info porcupine.LinearizationInfo, operations []porcupine.Operation) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	const shown = 40
	var out strings.Builder
	state, last := first, int64(0)
	for i, o := range longest {
		_, state = state.may(o.Input.(call), o.Output.(answer)) //nolint:errcheck // always these
		last = max(last, o.Call)
		if i >= len(longest)-shown {
			fmt.Fprintf(&out, "%s\n", line(o))
		}
	}
	fmt.Fprintf(&out, "state: %+v\nwhat comes next:\n", state)
	rest := slices.DeleteFunc(slices.Clone(operations), func(o porcupine.Operation) bool {
		return slices.ContainsFunc(longest, func(l porcupine.Operation) bool {
			return l.ClientId == o.ClientId && l.Call == o.Call && l.Return == o.Return
		})
	})
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, o := range rest[:min(len(rest), shown/2)] {
		fmt.Fprintf(&out, "%s\n", line(o))
	}
	return out.String()
}

func line(o porcupine.Operation) string {
	a := o.Output.(answer) //nolint:errcheck // it is always one
	text := fmt.Sprintf("client %d, %d..%d us: %+v -> %s%s", o.ClientId, o.Call/1000, o.Return/1000, o.Input, a.code, a.state)
	if a.unknown {
		text += "unknown"
	}
	if a.epoch > 0 {
		text += fmt.Sprintf(" epoch %d", a.epoch)
	}
	if a.seen != nil {
		text += fmt.Sprintf("%+v", *a.seen)
	}
	return text
}
