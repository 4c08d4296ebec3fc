// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"fmt"
	"runtime/debug"
)

// contained calls a part of a step and turns a panic, which would end the daemon again at each
// start, into an error, which undoes the op, or after the commit point parks it.
func (a *activeOp) contained(step *Step, part string, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			a.r.cfg.Log.Error("a step panicked", "op", a.op.ID, "step", step.Name, "part", part, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s of step %s panicked, which is a bug of Volferry: %v; the log has where", part, step.Name, p)
		}
	}()
	return call()
}

// parkOnPanic is deferred by the goroutine of the op. If the runner or a function of its Config
// panics, it parks this op. It records nothing, since recording may be what panicked: Continue and
// the next start of the daemon read the op's records again.
func (a *activeOp) parkOnPanic() {
	if p := recover(); p != nil {
		a.r.cfg.Log.Error("the runner panicked over an op", "op", a.op.ID, "panic", p, "stack", string(debug.Stack()))
		a.setBroken(fmt.Errorf("the runner panicked over op %s, which is a bug of Volferry: %v; the log has where", a.op.ID, p))
	}
}

func (a *activeOp) callDo(ctx context.Context, step *Step, run *Run) error {
	return a.contained(step, "Do", func() error { return step.Do(ctx, run) })
}

func (a *activeOp) callUndo(step *Step, run *Run) error {
	return a.contained(step, "Undo", func() error { return step.Undo(a.ctx, run) })
}

func (a *activeOp) callObserve(step *Step, run *Run) (seen Observation, err error) {
	err = a.contained(step, "Observe", func() (err error) { seen, err = step.Observe(a.ctx, run); return err })
	return seen, err
}
