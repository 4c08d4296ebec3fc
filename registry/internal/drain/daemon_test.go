// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// moveTakes is the duration of a host's move.
const moveTakes = 10 * time.Second

// daemon is a host that fetches its tasks and moves volumes, only in the registry: a move takes
// some time and ends. Like a real one it keeps a journal, so that a repeated op id gets the same
// answer.
type daemon struct {
	*relaytest.Host
	site *site

	mu      sync.Mutex
	journal relaytest.Journal
	ops     map[string]api.Op
	moving  int
	most    int
	asked   []api.MigrationTarget

	// refuse has the answers to the next calls for a volume, by its name.
	refuse map[string][]api.TaskAnswer
	// end is the end of a volume's moves, completed if it has none.
	end map[string]api.MigrationState
	// why is the error of an end.
	why map[string]*api.Error
	// vanish has the reasons why the next ops of a volume, by its name, are undone before the
	// registry knows their migrations.
	vanish map[string][]api.Code
}

func newDaemon(s *site, name string) *daemon {
	d := &daemon{
		site: s, ops: map[string]api.Op{},
		refuse: map[string][]api.TaskAnswer{}, end: map[string]api.MigrationState{}, why: map[string]*api.Error{}, vanish: map[string][]api.Code{},
	}
	d.Host = s.Host(name, []api.Pool{storetest.Dir("fast"), storetest.Dir("slow")}, d.perform)
	return d
}

// perform does a task, and reports whether its answer is sent.
func (d *daemon) perform(task api.Task) (api.TaskAnswer, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id, ok := relaytest.AsksForOp(task); ok {
		return relaytest.OpIs(d.ops[id]), true
	}
	return d.journal.Answer(task, d.migrate)
}

// migrate must be called with mu held.
func (d *daemon) migrate(task api.Task) api.TaskAnswer {
	volumeID := strings.TrimSuffix(strings.TrimPrefix(task.Path, "/v1/volumes/"), "/migrate")
	var target api.MigrationTarget
	if err := json.Unmarshal(task.Body, &target); err != nil || task.Method != http.MethodPost {
		d.site.T.Errorf("the task %s %s %s is not to migrate a volume", task.Method, task.Path, task.Body)
	}
	d.asked = append(d.asked, target)
	v, err := d.site.Store.Volumes.Get(context.Background(), volumeID, store.Viewer{HostID: d.ID})
	if err != nil {
		d.site.T.Errorf("host %s is asked for volume %s: %v", d.Name, volumeID, err)
		return relaytest.Refuse(api.CodeOf(err))
	}
	if next := d.refuse[v.Name]; len(next) > 0 {
		d.refuse[v.Name] = next[1:]
		return next[0]
	}
	m := api.MigrationRegister{
		ID: uuid.NewString(), VolumeID: v.ID, Host: d.Name, Epoch: 1, Generation: v.Generation,
		Dst: storetest.At("/" + target.ToPool + "/" + v.Name), Method: "offline", OpID: task.ID,
	}
	if !v.Unheld() {
		m.SrcAttachmentID, m.DstAttachmentID = v.Attachments[0].ID, uuid.NewString()
	}
	d.ops[task.ID] = api.Op{ID: task.ID, State: "running", MigrationID: m.ID}
	if why := d.vanish[v.Name]; len(why) > 0 {
		d.vanish[v.Name] = why[1:]
		d.ops[task.ID] = api.Op{ID: task.ID, State: "undone", MigrationID: m.ID, Error: api.Errorf(why[0], "undone as %s", why[0])}
	} else if _, err := d.site.Store.Migrations.Register(context.Background(), store.Call{}, m); err != nil {
		return refusal(api.AsError(err))
	} else {
		d.moving++
		d.most = max(d.most, d.moving)
		go d.move(m.ID, v.Name)
	}
	return api.TaskAnswer{Status: http.StatusAccepted, Body: relaytest.Document(map[string]any{
		"op": d.ops[task.ID], "migration": api.Migration{ID: m.ID},
	})}
}

// refusal returns the answer for an error.
func refusal(e *api.Error) api.TaskAnswer {
	body, _ := json.Marshal(api.ErrorBody{Error: e}) // an api.Error is always valid JSON
	return api.TaskAnswer{Status: e.Code.HTTPStatus(), Body: body}
}

// move ends a migration after moveTakes, in the registry that is open then.
func (d *daemon) move(id, name string) {
	pass := time.NewTimer(moveTakes)
	<-pass.C
	d.finish(id, name)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moving--
}

func (d *daemon) finish(id, name string) {
	d.site.There.RLock()
	defer d.site.There.RUnlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	end, ok := d.end[name]
	if !ok {
		end = api.MigrationCompleted
	}
	steps := []api.MigrationState{api.MigrationStarted, api.MigrationCompleting, end}
	if end == api.MigrationError {
		steps = []api.MigrationState{end}
	}
	for _, to := range steps {
		in := api.MigrationTransition{
			From: []api.MigrationState{api.MigrationStarting, api.MigrationStarted, api.MigrationCompleting}, To: to, Host: d.Name, Epoch: 1, OpID: "o",
		}
		if to == end {
			in.Error = d.why[name]
		}
		if to == api.MigrationError {
			// The registry gets the end, and only the journal has the reason.
			d.undone(id)
		}
		if _, err := d.site.Store.Migrations.Transition(context.Background(), store.Call{}, id, in); err != nil {
			d.site.T.Errorf("migration of %s to %s: %v", name, to, err)
		}
	}
}

// undone must be called with mu held.
func (d *daemon) undone(migrationID string) {
	for id, o := range d.ops {
		if o.MigrationID == migrationID {
			o.State, o.Error = "undone", api.Errorf(api.CodeCopyMismatch, "the copy differs")
			d.ops[id] = o
		}
	}
}

// refuses makes the daemon answer the next calls for a volume with these codes.
func (d *daemon) refuses(volume string, codes ...api.Code) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, code := range codes {
		d.refuse[volume] = append(d.refuse[volume], relaytest.Refuse(code))
	}
}

// refusesNothing removes the remaining refusals.
func (d *daemon) refusesNothing() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.refuse)
}

// mostAtOnce returns the largest number of volumes that moved at once.
func (d *daemon) mostAtOnce() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

func (d *daemon) targets() map[api.MigrationTarget]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	set := map[api.MigrationTarget]bool{}
	for _, target := range d.asked {
		set[target] = true
	}
	return maps.Clone(set)
}
