// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// A domain that the registry does not know is started on src during a move that the registry leads,
// writes there, and is off again at each look.

func TestADomainThatNobodyFollowsStopsALiveMove(t *testing.T) {
	type calls struct {
		v    api.LiveVolume
		d    *daemon
		runs func()
	}
	round := func(c *calls) {
		c.d.mustLive("M.track", api.LiveTrack{LiveVolume: c.v, Generation: 1})
		c.d.mustLive("M.round.0", api.LiveRound{LiveVolume: c.v, Generation: 1, UntilBytes: c.v.Src.SizeBytes})
	}
	suspend := func(t *testing.T, c *calls) {
		t.Helper()
		must(t, c.d.world.Suspend(t.Context(), testInstance))
		c.d.world.Registry.LiveRow(api.MigrationCompleting)
	}
	for name, until := range map[string]func(t *testing.T, c *calls) op.Status{
		"before it begins": func(_ *testing.T, c *calls) op.Status {
			c.runs()
			return c.d.live("M.track", api.LiveTrack{LiveVolume: c.v, Generation: 1})
		},
		"in a round": func(_ *testing.T, c *calls) op.Status {
			round(c)
			c.runs()
			return c.d.live("M.swap.1", api.LiveSwap{LiveVolume: c.v, Generation: 1, Round: 1})
		},
		"before the guests stand still": func(t *testing.T, c *calls) op.Status {
			t.Helper()
			round(c)
			c.runs()
			suspend(t, c)
			return c.d.live("M.read", api.LiveLastRead{LiveVolume: c.v, Generation: 1})
		},
		"before the last copy": func(t *testing.T, c *calls) op.Status {
			t.Helper()
			round(c)
			suspend(t, c)
			c.d.mustLive("M.read", api.LiveLastRead{LiveVolume: c.v, Generation: 1})
			c.runs()
			return c.d.live("M.last", api.LiveLastCopy{LiveVolume: c.v, Generation: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			liveDaemon(t, func(t *testing.T, d *daemon) {
				c := calls{liveVolume(), d, func() { d.world.DefineOn(t, srcPath) }} // it ran meanwhile
				st := until(t, &c)
				if st.State != op.StateUndone || st.Failure.Code != string(api.CodeVolumeInUse) || !strings.Contains(st.Failure.Message, "of instance other, which the registry does not know") {
					t.Errorf("it is %s: %+v, want it refused because of instance other", st.State, st.Failure)
				}
				d.world.Registry.LiveRow(api.MigrationCancelling)
				d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: c.v})
			})
		})
	}
}

// It is undefined again, so only src shows that it was written.
func TestASourceThatIsWrittenWhileItIsCopiedAsSavedUndoesTheCopy(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		err := d.manager().Parts.CopySaved(t.Context(), savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		must(t, d.world.WriteBlock(srcPath, 3, 1<<41))
		close(d.world.Copier.Gate)
		o := d.untilOp(savedCopy)
		if o.State != string(op.StateUndone) || o.Error == nil || o.Error.Code != api.CodeVolumeInUse || !strings.Contains(o.Error.Message, "it was written while it was copied") {
			t.Errorf("the op is %+v", o)
		}
		must(t, d.world.NothingMade())
	})
}
