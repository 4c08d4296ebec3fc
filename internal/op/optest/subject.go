// SPDX-License-Identifier: Apache-2.0

package optest

import (
	"testing"

	"github.com/volferry/volferry/internal/op"
)

// World is a fake of everything that an op acts on. It survives the runner as
// disks and hypervisors survive the daemon: the matrix crashes a runner and
// begins another one on the same World. It must not use sockets, since trials
// run in a bubble of testing/synctest.
type World interface {
	// Plans makes the plans as a daemon does when it starts. It is called once per runner,
	// and no state in the plans may be needed by the next runner.
	Plans() []op.Plan
	// Op is the op under test, the same in every call.
	Op() op.Op
	// Check says what is wrong with the world now that the op ended done or undone: an
	// effect that is missing, is there twice, or was left behind.
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
	// New makes a world in which nothing has happened yet.
	New func(t *testing.T) World
}
