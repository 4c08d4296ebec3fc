// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// If the operator discards the memory of an instance that cannot be restored, it is stopped, with
// all writes of its guest.
func TestTheCommandsOfAnInstanceThatCannotBeRestoredBringItBackStopped(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, d *pauseDaemon) {
		wantState(t, d.save("save"), op.StateDone, "")
		must(t, d.world.copied())
		d.world.Inject(hvtest.Fault{Call: "RestoreMemory", Err: errors.New("broken")})
		st := d.restore("restore", pausedWeb, pausedDst)
		wantState(t, st, op.StateUndone, api.CodeNeedsOperator)
		told := hosttest.CommandsIn(st.Failure.Message)
		slices.Reverse(told) // the removal of the file comes before the call
		person := &hosttest.Operator{Fake: d.world.Fake, Volferryctl: func(words []string) error {
			switch strings.Join(words, " ") {
			case "migration cancel " + pausedMig: // the alternative
			case "migration complete " + pausedMig:
				wantState(t, d.restore("restore.2", pausedWeb, pausedDst), op.StateDone, "")
			default:
				return errors.New("nobody can type that here")
			}
			return nil
		}}
		for _, line := range told {
			must(t, person.Type(line))
		}
		must(t, d.world.as(pausedWeb, hv.StateStopped, pausedDst))
	}, hv.StateRunning)
}

func TestTheCommandsOfADomainThatRunsAsItsUnshelveIsUndoneBringTheOpToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceShelvedOffloaded)
		n := w.nodes[0]
		d := startDaemon(t, n)
		w.registry.refuses = api.InstanceStopped
		n.journal.AfterAppend(func(r op.Record) {
			if r.Step == "define" && r.Kind == op.EventUndoStarted {
				n.journal.AfterAppend(nil)
				n.OnStart = nil // a host without a hook
				must(t, n.Fake.Start(web))
				n.OnStart = n.guards.Hook
			}
		})
		g, runner := d.Now()
		id := w.newOp()
		_, err := begins["unshelve"](t.Context(), g, id)
		must(t, err)
		st, err := runner.Wait(t.Context(), id)
		if st.State != op.StateNeedsOperator {
			t.Fatalf("the op is %s (%v): %+v", st.State, err, st.Failure)
		}
		w.registry.refuses = ""
		person := &hosttest.Operator{Fake: n.Fake, Volferryctl: func(words []string) error {
			if strings.Join(words, " ") != "instance unshelve web" {
				return errors.New("nobody can type that here")
			}
			return askUntilEnd(t, d, "unshelve")
		}}
		for _, line := range hosttest.CommandsIn(st.Failure.Message) {
			must(t, person.Type(line))
		}
		calm(t, d)
		if reg := w.registry.now(); reg.inst.State.OnShelf() || n.unsettled(reg) != "" {
			t.Errorf("the instance is %s: %s", reg.inst.State, n.unsettled(reg))
		}
	})
}

// The migration's op keeps the instance's turn until it is continued, which needs a right
// definition.
func TestARepairComesThroughWhileAnOpOfAMigrationWaitsForTheOperator(t *testing.T) {
	for _, state := range []api.InstanceState{api.InstanceRunning, api.InstanceStopped} {
		synctest.Test(t, func(t *testing.T) {
			d := startDaemon(t, newWorld(t, state).nodes[0])
			_, runner := d.Now()
			named := 0
			d.node.nameStanding = func() error { named++; return nil }
			if !runner.TryLock([]string{request.InstanceKey(web)}, func() { must(t, askUntilEnd(t, d, "repair")) }) || named != 1 {
				t.Errorf("the disk was named %d times", named)
			}
			d.node.nameStanding = func() error { return api.Errorf(api.CodeChainChanged, "nobody can tell") }
			wantCode(t, askUntilEnd(t, d, "repair"), api.CodeChainChanged)
		})
	}
}
