// SPDX-License-Identifier: Apache-2.0

package optest

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/op"
)

// World is a fake of everything that an op changes. The matrix crashes a runner and starts another
// one on the same World. It must not use sockets, since trials run in a bubble of
// testing/synctest.
type World interface {
	// Plans returns new plans, as a daemon makes them at its start. It is called once per runner.
	// The next runner must not need any state of the plans.
	Plans() []op.Plan
	// Op is the op under test, the same in every call.
	Op() op.Op
	// Check returns an error if the world is wrong after the op ended done or undone: an effect is
	// missing, happened twice, or was not undone.
	Check(state op.State) error
}

// Subject is an op kind under test.
//
//	func TestMatrix(t *testing.T) {
//		optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
//			return newFakeHost(t)
//		}})
//	}
type Subject struct {
	// New returns a world before the op.
	New func(t *testing.T) World
}
