// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/instance/plans"
	"github.com/volferry/volferry/daemon/internal/instance/shelf"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

// trial is a world for the run of one op.
type trial struct {
	*world
	kind string
	in   interface{ Keys() []string }
	// wants are the permitted states of the instance after the op.
	wants map[op.State][]api.InstanceState
}

// noRunner runs nothing: ops that follow an op are not part of its matrix.
type noRunner struct{}

func (noRunner) Submit(context.Context, op.Op) error { return nil }
func (noRunner) Active() []op.Status                 { return nil }
func (noRunner) Status(context.Context, string) (op.Status, error) {
	return op.Status{}, op.ErrNotFound
}

// Plans implements optest.World.
func (s *trial) Plans() []op.Plan {
	n := s.nodes[0]
	host := func(context.Context) (Host, error) { return n.host(), nil }
	return plans.NewEnv(subject.Config{}, n.ports(), noRunner{}, n.journal, host, slog.New(slog.DiscardHandler)).Plans()
}

// Op implements optest.World.
func (s *trial) Op() op.Op {
	data, err := json.Marshal(s.in)
	if err != nil {
		panic(err)
	}
	return op.Op{ID: testOp, Kind: s.kind, Keys: s.in.Keys(), Input: data, CreatedAt: time.Unix(1, 0)}
}

// Check implements optest.World.
func (s *trial) Check(state op.State) error {
	err := s.settled()
	if got := s.registry.now().inst.State; !slices.Contains(s.wants[state], got) {
		err = errors.Join(err, fmt.Errorf("the instance is %s, want %v", got, s.wants[state]))
	}
	return err
}

func matrix(t *testing.T, kind string, from, to api.InstanceState, make func(*node) interface{ Keys() []string }) {
	t.Helper()
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := newWorld(t, from)
		return &trial{world: w, kind: kind, in: make(w.nodes[0]), wants: map[op.State][]api.InstanceState{op.StateDone: {to}, op.StateUndone: {from}}}
	}})
}

func TestMatrixOfPower(t *testing.T) {
	for kind, states := range map[string][2]api.InstanceState{
		subject.KindStart: {api.InstanceStopped, api.InstanceRunning}, subject.KindStop: {api.InstanceRunning, api.InstanceStopped},
		subject.KindReboot: {api.InstanceRunning, api.InstanceRunning}, subject.KindPause: {api.InstanceRunning, api.InstancePaused},
		subject.KindUnpause: {api.InstancePaused, api.InstanceRunning},
	} {
		t.Run(kind, func(t *testing.T) {
			matrix(t, kind, states[0], states[1], func(n *node) interface{ Keys() []string } { return &subject.PowerInput{Subject: n.subject()} })
		})
	}
}

func TestMatrixOfShelve(t *testing.T) {
	for _, c := range []struct {
		from, to  api.InstanceState
		keep, was bool
	}{
		{api.InstanceRunning, api.InstanceShelvedOffloaded, false, false},
		{api.InstanceStopped, api.InstanceShelved, true, false},
		{api.InstanceShelved, api.InstanceShelvedOffloaded, false, true},
	} {
		t.Run(fmt.Sprintf("%s to %s", c.from, c.to), func(t *testing.T) {
			matrix(t, subject.KindShelve, c.from, c.to, func(n *node) interface{ Keys() []string } {
				return &shelf.ShelveInput{Subject: n.subject(), Keep: c.keep, Was: c.was}
			})
		})
	}
}

func TestMatrixOfUnshelve(t *testing.T) {
	for _, from := range []api.InstanceState{api.InstanceShelved, api.InstanceShelvedOffloaded} {
		t.Run(string(from), func(t *testing.T) {
			matrix(t, subject.KindUnshelve, from, api.InstanceStopped, func(n *node) interface{ Keys() []string } {
				return &shelf.UnshelveInput{Subject: n.subject()}
			})
		})
	}
}
