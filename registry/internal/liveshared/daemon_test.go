// SPDX-License-Identifier: Apache-2.0

package liveshared_test

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

// daemon is a host that fetches its tasks and keeps a journal. Its ops go a step at a time,
// in any order, and end with its process: then they begin anew from what the journal has.
type daemon struct {
	*relaytest.Host
	site    *site
	guests  []*guest
	journal relaytest.Journal
	ops     []*op
	calls   map[string]int // how often, by name

	// What it keeps: the processes that it follows, the last bitmaps as it read them, and what
	// of the move is over.
	followed map[string]int // by guest
	reached  step           // the last swap, or the tracking
	last     bits
	// ranAtRead is a guest that ran when the last bitmaps were read, "" if all stood still.
	ranAtRead string
	over      int  // the generation that was ended last
	left      bool // the move
	// stuck is how often it cannot clear away. Full: it cannot copy.
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

// op is one that was taken on. Next makes its next step; begin puts it to its start, as when
// the daemon is started anew.
type op struct {
	api.Op
	live   bool // a call about the copy, that comes after the last one
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

// perform takes a task on, and reports whether the registry is to hear of it.
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

// isBusy reports whether a call is refused for the moment, which follows from the seed and from
// what is called how often: the hosts and both loops are at work at once, and come in any order.
func (d *daemon) isBusy(id string) bool {
	call := d.Name + " " + nameOf(id)
	d.calls[call]++
	d.site.happened = append(d.site.happened, fmt.Sprint(time.Now().UnixMilli(), " ", call))
	return seedtest.RandOf(d.site.seed, fmt.Sprint(call, d.calls[call])).IntN(12) == 0
}

// nameOf is the id of a call without what is random of it: its move, and the end of one that
// hastens.
func nameOf(id string) string {
	_, name, _ := strings.Cut(id, ".")
	if hastens(id) {
		name = name[:strings.LastIndex(name, ".")]
	}
	return name
}

// hastens reports whether a call is to end a round that nobody wants any more: it is asked beside
// that, under an id that ends in a random part.
func hastens(id string) bool {
	_, err := uuid.Parse(id[strings.LastIndex(id, ".")+1:])
	return err == nil && strings.Contains(id, ".end.")
}

// wantAlone notes it if a host is asked for something while it is still at the last thing.
func (d *daemon) wantAlone(asked *op) {
	for _, o := range d.running() {
		if o.live && asked.live {
			d.site.wrong("R6: host %s is asked for %s while it may still be at %s", d.Name, asked.ID, o.ID)
		}
	}
}

// goOn makes the next step of an op, for callers that hold the site's mu.
func (d *daemon) goOn(o *op) {
	over, failed := o.next()
	switch {
	case failed != nil:
		o.State, o.Error = api.OpUndone, failed
	case over:
		o.State = api.OpDone
	}
}

// running are the ops that are not over, in an order that does not follow from when they came.
func (d *daemon) running() []*op {
	all := slices.DeleteFunc(slices.Clone(d.ops), func(o *op) bool { return o.State != "running" })
	slices.SortStableFunc(all, func(a, b *op) int { return strings.Compare(nameOf(a.ID), nameOf(b.ID)) })
	return all
}

// restart ends the process of the daemon and starts another one. Nothing of a guest changes
// by that.
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

// once is an op of one step.
func once(do func() *api.Error) func() (bool, *api.Error) {
	return func() (bool, *api.Error) { return true, do() }
}
