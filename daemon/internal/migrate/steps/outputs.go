// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"encoding/json"
	"time"

	"github.com/volferry/volferry/internal/op"
)

// decodeOutput reads the output of a step of an op; false if there is none.
func decodeOutput(st *op.Status, step string, v any) bool {
	data, ok := st.Outputs[step]
	return ok && json.Unmarshal(data, v) == nil
}

// Granted says whether the registry has granted a start its lock.
func Granted(st *op.Status) bool {
	_, ok := st.Outputs[registerStep]
	return ok
}

// CancelAdmitted says whether a cancel was admitted: from then on it may have changed something.
func CancelAdmitted(st *op.Status) bool {
	var out admittedOutput
	return decodeOutput(st, admitStep, &out)
}

// FrozenAt is when a start has seen src frozen; ok is false if it has not come so far.
func FrozenAt(st *op.Status) (at time.Time, ok bool) {
	var out frozenOutput
	ok = decodeOutput(st, frozenStep, &out)
	return out.At, ok
}

// NotFrozen says what is wrong with a src that QEMU did not let go of, "" if nothing is.
func NotFrozen(st *op.Status) string {
	var out frozenOutput
	decodeOutput(st, frozenStep, &out)
	return out.NotFrozen
}

// StartStall is for how many milliseconds the guest could not write when it was put onto
// the overlay, nil if that is not known; ok is false for an op that did no such thing.
func StartStall(st *op.Status) (ms *float64, ok bool) {
	var out switchOutput
	ok = decodeOutput(st, switchStep, &out)
	return out.StallMS, ok
}

// SwitchStall is startStall for the switch that ends the migration.
func SwitchStall(st *op.Status) (ms *float64, ok bool) {
	var out resumeOutput
	ok = decodeOutput(st, toSwitch.end, &out)
	return out.StallMS, ok
}
