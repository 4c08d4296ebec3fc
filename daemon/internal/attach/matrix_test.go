// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

// subject is a world for the run of one op.
type subject struct {
	*world
	kind string
	in   input
	// has reports, by the op's final state, whether the instance must have the volume.
	has map[op.State]bool
}

// Plans implements optest.World.
func (s *subject) Plans() []op.Plan {
	g := s.newManager(optest.NewRunner(s.journal))
	g.env.runner = noRunner{}
	return g.Plans()
}

// noRunner runs nothing: ops that follow an op are not part of its matrix.
type noRunner struct{}

func (noRunner) Submit(context.Context, op.Op) error { return errors.New("the registry is there") }
func (noRunner) Active() []op.Status                 { return nil }

// Op implements optest.World.
func (s *subject) Op() op.Op {
	data, err := json.Marshal(s.in)
	if err != nil {
		panic(err)
	}
	return op.Op{ID: testOp, Kind: s.kind, Keys: s.in.Keys(), Input: data, CreatedAt: time.Unix(1, 0)}
}

// Check implements optest.World.
func (s *subject) Check(state op.State) error {
	has := s.registry.state() == api.AttachmentAttached
	err := s.settled()
	if has != s.has[state] {
		err = errors.Join(err, fmt.Errorf("the instance has the volume: %t", has))
	}
	if s.images.Early {
		err = errors.Join(err, errors.New("the location was disconnected under a guest"))
	}
	return err
}

var states = []hv.State{hv.StateRunning, hv.StatePaused, hv.StateStopped}

func TestMatrixOfAttach(t *testing.T) {
	for _, state := range states {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				w := newWorld(t, state)
				if state == hv.StatePaused {
					resumeAfter(w, time.Minute) // otherwise it never releases the disk
				}
				return &subject{world: w, kind: kindAttach, in: w.input(testAtt, web), has: map[op.State]bool{op.StateDone: true}}
			}})
		})
	}
}

func resumeAfter(w *world, d time.Duration) { time.AfterFunc(d, func() { _ = w.ResumeByUser(web) }) }

func TestMatrixOfDetach(t *testing.T) {
	for _, state := range states {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				w := newWorld(t, state)
				w.attached(t, testAtt, web)
				if state == hv.StatePaused {
					resumeAfter(w, time.Second)
				}
				return &subject{world: w, kind: kindDetach, in: w.input(testAtt, web), has: map[op.State]bool{op.StateUndone: true}}
			}})
		})
	}
}

func TestMatrixOfAttachRoot(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := newRootWorld(t, false)
		return &subject{world: w, kind: kindAttachRoot, in: w.rootInput(), has: map[op.State]bool{op.StateDone: true}}
	}})
}

func TestMatrixOfDetachRoot(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := newRootWorld(t, true)
		return &subject{world: w, kind: kindDetachRoot, in: w.rootInput(), has: map[op.State]bool{op.StateUndone: true}}
	}})
}

func TestMatrixOfDelete(t *testing.T) {
	for _, kind := range []string{kindDelete, kindRelease, kindDeleteRoot} {
		t.Run(kind, func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				w := newWorld(t, hv.StateRunning)
				in := w.input(testAtt, web)
				in.Root = kind == kindDeleteRoot
				if in.Root {
					in.Device = "vdz"
				}
				in.Force = true
				// An ended op left it; the op under test may also keep it.
				w.registry.rows[testAtt] = in.attachment(api.AttachmentAttached)
				return &leftover{&subject{world: w, kind: kind, in: in, has: map[op.State]bool{op.StateUndone: true}}}
			}})
		})
	}
}

// leftover is a subject with an attachment that is in no domain.
type leftover struct{ *subject }

// Check implements optest.World.
func (s *leftover) Check(state op.State) error {
	if has := s.registry.state() != ""; has != s.has[state] {
		return fmt.Errorf("the registry has the attachment: %t", has)
	}
	return nil
}

func TestMatrixOfRestore(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := newWorld(t, hv.StateRunning)
		w.attached(t, testAtt, web)
		must(t, w.Fake.DetachDisk(t.Context(), web, hv.Live, "vdb"))
		return &restored{&subject{world: w, kind: kindRestore, in: w.input(testAtt, web)}}
	}})
}

// restored is a subject that may end without its live disk, but not without its attachment.
type restored struct{ *subject }

// Check implements optest.World.
func (s *restored) Check(state op.State) error {
	if state == op.StateDone {
		return s.settled()
	}
	if got := s.registry.state(); got != api.AttachmentAttached {
		return fmt.Errorf("the attachment is %q", got)
	}
	return nil
}
