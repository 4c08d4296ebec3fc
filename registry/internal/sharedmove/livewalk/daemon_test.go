// SPDX-License-Identifier: Apache-2.0

package livewalk_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/seedtest"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/storetest"
)

const blockBytes = 64 << 10

// daemon is a host that fetches its tasks and keeps a journal. Its ops advance a step at a time, in
// any order. When its process is restarted, they restart from the journal.
type daemon struct {
	*relaytest.Host
	site    *site
	guests  []*guest
	journal relaytest.Journal
	ops     []*op
	calls   map[string]int // how often, by name

	// Its stored state: the processes that it tracks, the last bitmaps that it read, and the
	// finished parts of the move.
	followed map[string]int // by guest
	reached  step           // the last swap, or the begin of tracking
	last     bits
	// ranAtRead is a guest that ran when the last bitmaps were read, "" if all were paused.
	ranAtRead string
	over      int  // the last ended generation
	left      bool // the move
	// stuck is the number of times that it cannot remove bitmaps. full means that it cannot copy.
	stuck int
	full  bool
	// held is the block that was read from src and is not on dst yet, nil if there is none.
	held *heldBlock
}

type heldBlock struct{ block, content int }

// step is a round of a generation.
type step struct{ generation, round int }

func (a step) before(b step) bool {
	return a.generation < b.generation || a.generation == b.generation && a.round < b.round
}

// op is an accepted op. next makes its next step; begin resets it, as after a restart of the
// daemon.
type op struct {
	api.Op
	live   bool // a call about the copy that must follow the previous one
	copies bool // blocks, of a generation
	of     int
	begin  func()
	next   func() (over bool, failed *api.Error)
}

func newDaemon(s *site, name string) *daemon {
	d := &daemon{site: s, followed: map[string]int{}, calls: map[string]int{}}
	d.Host = s.Host(name, []api.Pool{storetest.NFS("old"), storetest.NFS("new")}, d.perform)
	return d
}

// perform accepts a task, and reports whether its answer is sent.
func (d *daemon) perform(task api.Task) (api.TaskAnswer, bool) {
	d.site.mu.Lock()
	defer d.site.mu.Unlock()
	if id, ok := relaytest.AsksForOp(task); ok {
		at := slices.IndexFunc(d.ops, func(o *op) bool { return o.ID == id })
		if at < 0 {
			return relaytest.Refuse(api.CodeNotFound), true
		}
		return relaytest.OpIs(d.ops[at].Op), true
	}
	return d.journal.Answer(task, d.take)
}

// take answers a new task.
func (d *daemon) take(task api.Task) api.TaskAnswer {
	parts := strings.Split(strings.TrimPrefix(task.Path, "/v1/"), "/")
	verb := parts[len(parts)-1]
	if strings.HasPrefix(verb, "check") {
		return api.TaskAnswer{Status: http.StatusOK, Body: json.RawMessage(`{}`)}
	}
	if d.isBusy(task.ID) {
		return relaytest.Refuse(api.CodeInstanceBusy)
	}
	o := &op{Op: api.Op{ID: task.ID, State: "running"}, begin: func() {}}
	if live := d.live(verb, task.Body, o); live != nil {
		o.next, o.live = live, !hastens(o.ID)
		d.wantAlone(o)
	} else {
		o.next = d.paused(verb, parts[1], task.Body)
	}
	if o.next == nil {
		d.site.wrong("host %s is asked for %s", d.Name, verb)
		return relaytest.Refuse(api.CodeNotFound)
	}
	d.ops = append(d.ops, o)
	o.begin()
	return api.TaskAnswer{Status: http.StatusAccepted, Body: relaytest.Document(map[string]any{"op": o.Op})}
}

// isBusy reports whether a call is refused temporarily. That follows from the seed and the number
// of calls of the name, because the hosts and both loops run concurrently and in any order.
func (d *daemon) isBusy(id string) bool {
	call := d.Name + " " + nameOf(id)
	d.calls[call]++
	d.site.happened = append(d.site.happened, fmt.Sprint(time.Now().UnixMilli(), " ", call))
	return seedtest.RandOf(d.site.seed, fmt.Sprint(call, d.calls[call])).IntN(12) == 0
}

// nameOf returns the id of a call without its random parts: its move, and the suffix of a hastening
// end.
func nameOf(id string) string {
	_, name, _ := strings.Cut(id, ".")
	if hastens(id) {
		name = name[:strings.LastIndex(name, ".")]
	}
	return name
}

// hastens reports whether a call ends an obsolete round: its id ends in a random part.
func hastens(id string) bool {
	_, err := uuid.Parse(id[strings.LastIndex(id, ".")+1:])
	return err == nil && strings.Contains(id, ".end.")
}

// wantAlone records a violation if a host gets a call while its previous one may still run.
func (d *daemon) wantAlone(asked *op) {
	for _, o := range d.running() {
		if o.live && asked.live {
			d.site.wrong("R6: host %s is asked for %s while it may still be at %s", d.Name, asked.ID, o.ID)
		}
	}
}

// goOn makes the next step of an op. The caller must hold the site's mu.
func (d *daemon) goOn(o *op) {
	over, failed := o.next()
	switch {
	case failed != nil:
		o.State, o.Error = api.OpUndone, failed
	case over:
		o.State = api.OpDone
	}
}

// running returns the unfinished ops, in an order independent of their arrival.
func (d *daemon) running() []*op {
	all := slices.DeleteFunc(slices.Clone(d.ops), func(o *op) bool { return o.State != "running" })
	slices.SortStableFunc(all, func(a, b *op) int { return strings.Compare(nameOf(a.ID), nameOf(b.ID)) })
	return all
}

// restart restarts the process of the daemon. Guests do not change.
func (d *daemon) restart(mute int) {
	d.Away()
	d.site.mu.Lock()
	d.held = nil
	for _, o := range d.running() {
		o.begin()
	}
	d.journal.Mute = mute
	d.site.mu.Unlock()
	d.Start()
}

func (d *daemon) read(body []byte, into any) {
	if err := json.Unmarshal(body, into); err != nil {
		d.site.wrong("body %s: %v", body, err)
	}
}

// once returns an op of one step.
func once(do func() *api.Error) func() (bool, *api.Error) {
	return func() (bool, *api.Error) { return true, do() }
}
