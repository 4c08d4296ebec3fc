// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// heard is a listener that records each event once, and whether the ops ran then.
type heard struct {
	ops *ops

	mu      sync.Mutex
	events  []string
	refuses int // how often it cannot resume its work
}

func (h *heard) keep(event string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if event = fmt.Sprintf("%s, ops run: %t", event, h.ops.run()); !slices.Contains(h.events, event) {
		h.events = append(h.events, event)
	}
}

func (h *heard) Epoch(epoch int64)          { h.keep(fmt.Sprint("epoch ", epoch)) }
func (h *heard) RegistryUp()                { h.keep("up") }
func (h *heard) BeforeHalt(context.Context) { h.keep("before halt") }

func (h *heard) Resumed(context.Context) error {
	h.keep("resumed")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuses == 0 {
		return nil
	}
	h.refuses--
	return errors.New("the journal cannot be read")
}

func TestListenersHearOfAFenceBeforeTheOpsAreHaltedAndAfterTheyGoOn(t *testing.T) {
	bubble(t, func(w *world) {
		w.open()
		one, other := &heard{ops: w.ops, refuses: 2}, &heard{ops: w.ops}
		w.up.Listen(one)
		w.up.Listen(other)
		w.runUplink()
		pass(time.Minute)
		w.registry.fence()
		pass(time.Minute)
		w.kill()
		if err := w.up.Admit(); err != nil {
			t.Errorf("the host has not come back: %v", err)
		}
		if one.refuses != 0 {
			t.Errorf("a listener that could not take up its work was not asked again: %d times are left", one.refuses)
		}
		want := []string{
			"epoch 0, ops run: true", "epoch 1, ops run: true", "up, ops run: true",
			"epoch 2, ops run: true", "before halt, ops run: true", "up, ops run: false", "resumed, ops run: true",
		}
		for _, l := range []*heard{one, other} {
			if diff := cmp.Diff(want, l.events); diff != "" {
				t.Errorf("events (-want +got)\n%s", diff)
			}
		}
	})
}

func TestAListenerHearsTheEpochThatAnEarlierProcessWasTold(t *testing.T) {
	running(t, func(w *world) {
		w.kill()
		w.heardFirst("epoch 1, ops run: true")
		w.runUplink()
		w.fake.Disconnect() // so that the host cannot come back
		w.registry.fence()
		pass(time.Minute)
		w.kill()
		w.heardFirst("epoch 2, ops run: false")
		w.runUplink()
	})
}

// heardFirst opens the uplink of a starting daemon, and checks the first event of a new listener.
func (w *world) heardFirst(want string) {
	w.t.Helper()
	up := w.open()
	l := &heard{ops: w.ops}
	up.Listen(l)
	if diff := cmp.Diff([]string{want}, l.events); diff != "" {
		w.t.Errorf("events (-want +got)\n%s", diff)
	}
}

func TestReportsSayNothingOfMigrationsThatNobodyKnows(t *testing.T) {
	bubble(t, func(w *world) {
		w.open().ReportMigrations(nil)
		w.must(w.up.ReportNow(w.t.Context()))
		if r := w.registry.whole; r.Migrations != nil || len(r.Instances) != 2 {
			t.Errorf("the report has the migrations %v and %d instances", r.Migrations, len(r.Instances))
		}
	})
}
