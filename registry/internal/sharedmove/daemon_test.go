// SPDX-License-Identifier: Apache-2.0

package sharedmove_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/storetest"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// opTakes is the duration of a host's op.
const opTakes = 3 * time.Second

// guest is an instance on its host.
type guest struct {
	// process means that it has a process, which has the volume open; running that the process is
	// not paused; memory that its RAM is in a file.
	process, running, memory bool
	byHand                   bool // another program resumed it, and no registry could have known
	// off means that its RAM was lost with the power of its host, or an operator discarded it; it
	// can only be started.
	off bool
	// at is the location of its volume, since the time since when it runs without a pause.
	at    string
	since time.Time
}

// daemon is a host that fetches its tasks and, like a real one, keeps a journal, so that a repeated
// op id gets the same answer. Its ops take some time, and ops about one object follow one after the
// other.
type daemon struct {
	*relaytest.Host
	site *site

	// guarded by the site's mu
	guests  map[string]*guest
	journal relaytest.Journal
	ops     map[string]*op
	free    map[string]time.Time // when the last op about an object ends
	asked   []string
	// rests has its records of suspended and saved guests, by migration and guest.
	rests map[string]map[string]api.SavedInstance
	// fail has the ends of the next calls of a verb, see act.
	fail map[string][]string
	// lost is the verb of a call that kills it once before it executes the call; late delays the
	// execution of verbs after all other tasks of the same time.
	lost string
	// fenced means that it was fenced once.
	fenced bool
	late   map[string]time.Duration
}

// op is an accepted op; it has its effect at its end.
type op struct {
	api.Op
	after time.Time
	// turn is its place among the ops of its host: ops that end at the same time end in this order.
	turn int
	do   func() *api.Error
}

// How a call can fail.
const (
	busy    = "busy"    // refused temporarily
	refused = "refused" // refused permanently
	barred  = "barred"  // refused permanently, and certainly not begun
	crashed = "crashed" // answered with an unexpected status
	undone  = "undone"  // accepted, and undone
	halted  = "halted"  // accepted, done, and stopped for an operator
	doubted = "doubted" // accepted and done, but answered as uncertain
	resumed = "resumed" // refused, because another program has resumed the guest
	// accepted, and undone except for the memory, because another program has resumed another guest
	// of the host.
	overtaken = "overtaken"
)

func newDaemon(s *site, name string) *daemon {
	d := &daemon{
		site: s, guests: map[string]*guest{}, ops: map[string]*op{}, free: map[string]time.Time{}, fail: map[string][]string{}, rests: map[string]map[string]api.SavedInstance{},
	}
	d.Host = s.Host(name, []api.Pool{storetest.NFS("old"), storetest.NFS("new")}, d.perform)
	return d
}

// perform does a task, and reports whether its answer is sent.
func (d *daemon) perform(task api.Task) (api.TaskAnswer, bool) {
	if wait := d.late[task.Path[strings.LastIndex(task.Path, "/")+1:]]; wait > 0 {
		time.Sleep(wait) //nolint:forbidigo // fake time
	}
	if d.site.apart != nil {
		time.Sleep(d.site.apart(d, task)) //nolint:forbidigo // fake time
	}
	d.site.mu.Lock()
	defer d.site.mu.Unlock()
	if id, ok := relaytest.AsksForOp(task); ok {
		o := d.ops[id]
		if o == nil {
			return relaytest.Refuse(api.CodeNotFound), true
		}
		d.goOn()
		return relaytest.OpIs(o.Op), true
	}
	if d.lost != "" && strings.HasSuffix(task.Path, "/"+d.lost) {
		d.lost = ""
		return api.TaskAnswer{}, false
	}
	return d.journal.Answer(task, d.take)
}

// goOn ends the ops that are due, in order.
func (d *daemon) goOn() {
	due := []*op{}
	for _, o := range d.ops {
		if o.State == "running" && !time.Now().Before(o.after) {
			due = append(due, o)
		}
	}
	slices.SortFunc(due, func(a, b *op) int { return cmp.Or(a.after.Compare(b.after), cmp.Compare(a.turn, b.turn)) })
	for _, o := range due {
		if o.Error = o.do(); o.Error != nil && o.State == "running" {
			o.State = "undone"
		} else if o.State == "running" {
			o.State = "done"
		}
	}
}

// take answers a new task.
func (d *daemon) take(task api.Task) api.TaskAnswer {
	parts := strings.Split(strings.TrimPrefix(task.Path, "/v1/"), "/")
	verb := parts[len(parts)-1]
	if !strings.HasPrefix(verb, "check") {
		d.asked = append(d.asked, task.ID)
	}
	end, takes := "", opTakes
	if next := d.fail[verb]; len(next) > 0 {
		end, d.fail[verb] = next[0], next[1:]
	}
	if d.site.chance != nil {
		end, takes = d.site.chance(d, verb, task)
	}
	switch end {
	case busy:
		return relaytest.Refuse(api.CodeInstanceBusy)
	case refused:
		return relaytest.Refuse(api.CodeNoSpace)
	case resumed:
		d.guests[parts[1]].running, d.guests[parts[1]].byHand = true, true
		refusal, _ := json.Marshal(api.ErrorBody{Error: api.Errorf(api.CodeStateForbidden, "it runs").With("ran_on", true)})
		return api.TaskAnswer{Status: http.StatusConflict, Body: refusal}
	case barred:
		return relaytest.Refuse(api.CodeStateForbidden)
	case crashed:
		return api.TaskAnswer{Status: http.StatusBadGateway, Body: json.RawMessage(`{}`)}
	}
	if verb == "check-save" || verb == "check-copy" {
		return api.TaskAnswer{Status: http.StatusOK, Body: json.RawMessage(`{}`)}
	}
	takes += max(0, time.Until(d.free[parts[1]]))
	o := &op{Op: api.Op{ID: task.ID, State: "running"}, after: time.Now().Add(takes), turn: len(d.ops)}
	d.free[parts[1]] = o.after
	act := d.act(verb, parts[1], task.Body, o)
	o.do = func() *api.Error {
		switch end {
		case undone:
			return api.Errorf(api.CodeNoSpace, "no space")
		case halted:
			if err := act(); err != nil {
				return err
			}
			o.State = "needs_operator"
			return api.Errorf(api.CodeNeedsOperator, "look at it")
		case overtaken:
			if err := act(); err != nil {
				return err
			}
			return d.overtakes(parts[1])
		}
		return act()
	}
	d.ops[task.ID] = o
	time.AfterFunc(takes, func() { // whether the registry queries it or not
		d.site.mu.Lock()
		defer d.site.mu.Unlock()
		if d.Polling() {
			d.goOn()
		}
	})
	if end == doubted {
		o.Error, o.State = act(), "done"
		return relaytest.Refuse(api.CodeJournalUnavailable)
	}
	return api.TaskAnswer{Status: http.StatusAccepted, Body: relaytest.Document(map[string]any{"op": o.Op})}
}

// overtakes resumes another guest of the host by hand while one is saved, and reports it.
func (d *daemon) overtakes(saved string) *api.Error {
	for id, g := range d.guests {
		if id != saved && g.process {
			g.running, g.byHand = true, true
			return api.Errorf(api.CodeVolumeInUse, "guest %s runs", id).With("ran_on", true).With("instance_id", id)
		}
	}
	d.site.wrong("host %s has no other guest", d.Name)
	return nil
}

// act returns the effect of a call at its end, which also checks the invariants.
func (d *daemon) act(verb, id string, body []byte, o *op) func() *api.Error {
	s := d.site
	switch verb {
	case "suspend":
		var in api.InstanceSuspend
		d.read(body, &in)
		return func() *api.Error { return d.suspend(in.MigrationID, id) }
	case "save":
		var in api.InstanceSave
		d.read(body, &in)
		d.rest(in.MigrationID, id, in.VolumeID, storetest.At("/old/v"))
		return func() *api.Error { return d.save(id) }
	case "restore":
		var in api.InstanceRestore
		d.read(body, &in)
		d.rest(in.MigrationID, id, in.VolumeID, in.Location)
		return func() *api.Error { return d.restore(in, id) }
	case "resume":
		var in api.InstanceResume
		d.read(body, &in)
		return func() *api.Error { return d.resume(in.MigrationID, id, in.Location) }
	case "copy-saved":
		var in api.CopySaved
		d.read(body, &in)
		return func() *api.Error {
			// The copy of a move that was cancelled since is not used.
			p, err := s.Store.Pauses.Get(s.T.Context(), in.MigrationID)
			wanted := err == nil && p.Phase == workflow.PauseCopying
			for _, h := range s.hosts {
				for name, g := range h.guests {
					// Nor is the copy of a host that was fenced.
					if g.process && wanted && !s.canBeLost(h) && !s.canBeLost(d) && !d.fenced {
						s.wrong("guest %s has the volume open while it is copied", name)
					}
				}
			}
			dst := in.Dst
			dst.Path = "/" + dst.Pool + "/" + dst.Name
			s.images[dst.Path] = true
			o.Location = &dst
			return nil
		}
	case "drop-saved":
		var in api.DropSaved
		d.read(body, &in)
		return func() *api.Error {
			path := in.Location.Path
			if in.Drop == api.DropDst {
				path = "/" + in.Location.Pool + "/" + in.Location.Name
			}
			if in.Drop == api.DropSrc && !s.images["/old/v"] {
				s.wrong("src is deleted twice")
			}
			delete(s.images, path)
			return nil
		}
	}
	s.wrong("host %s is asked for %s", d.Name, verb)
	return func() *api.Error { return nil }
}

func (d *daemon) rest(migration, guest, volume string, at api.Location) {
	if d.rests[migration] == nil {
		d.rests[migration] = map[string]api.SavedInstance{}
	}
	d.rests[migration][guest] = api.SavedInstance{InstanceID: guest, InstanceName: guest, VolumeID: volume, Location: at}
}

// saved returns the daemon's records of a move.
func (d *daemon) saved(migration string) []api.SavedInstance {
	d.site.mu.Lock()
	defer d.site.mu.Unlock()
	out := []api.SavedInstance{}
	for guest, is := range d.rests[migration] {
		g := d.guests[guest]
		is.Asleep, is.AtRest = g.memory, !g.running
		out = append(out, is)
	}
	return out
}

func (d *daemon) read(body []byte, into any) {
	if err := json.Unmarshal(body, into); err != nil {
		d.site.wrong("body %s: %v", body, err)
	}
}

// canBeLost reports whether a host's guests do not count because it was fenced.
func (s *site) canBeLost(d *daemon) bool { return !d.Polling() }

// fails sets the ends of the next calls of a verb.
func (d *daemon) fails(verb string, how ...string) {
	d.site.mu.Lock()
	defer d.site.mu.Unlock()
	d.fail[verb] = how
}

// calls returns the ids of the daemon's tasks, without the migration.
func (d *daemon) calls(migration string) []string {
	d.site.mu.Lock()
	defer d.site.mu.Unlock()
	out := []string{}
	for _, id := range d.asked {
		out = append(out, strings.TrimPrefix(id, migration+"."))
	}
	return out
}
