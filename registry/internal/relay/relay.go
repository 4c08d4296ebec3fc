// SPDX-License-Identifier: Apache-2.0

// Package relay passes calls on from those who ask the registry to the hosts
// that have to answer. The registry never connects to a host: a daemon fetches
// its tasks by long poll and posts their answers. The package owns who is there,
// which host has to answer for what, which task waits for whom, and what a caller
// is told when no answer comes. It knows nothing of what a task means.
package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

const (
	// DefaultAnswerTimeout is how long a task may wait to be fetched, and a caller for
	// the answer.
	DefaultAnswerTimeout = 20 * time.Second
	// DefaultAbsence is how long ago the last long poll of a host may have ended
	// for the host to count as there.
	DefaultAbsence = 30 * time.Second
)

// readPrefix begins the ids of tasks that change nothing. They are not stored,
// so an answer to one that nobody waits for any more is dropped.
const readPrefix = "read-"

// Store keeps the tasks that change something.
type Store interface {
	CreateTask(ctx context.Context, call store.Call, in api.Task, asked workflow.TaskRequest) (api.Task, *api.TaskAnswer, error)
	Task(ctx context.Context, id string) (api.Task, *api.TaskAnswer, error)
	PendingTasks(ctx context.Context, hostID string) ([]api.Task, error)
	TakeTasks(ctx context.Context, call store.Call, hostID string, ids []string) ([]api.Task, error)
	AnswerTask(ctx context.Context, call store.Call, hostID, taskID string, in api.TaskAnswer) error
	WithdrawTask(ctx context.Context, call store.Call, id string) (bool, error)
	Host(ctx context.Context, ref string) (api.Host, error)
	AuditSeen(ctx context.Context, what, object string) error
}

// Config is what a Relay needs.
type Config struct {
	Store Store
	Log   *slog.Logger
	// AnswerTimeout and Absence are the defaults above where they are 0.
	AnswerTimeout, Absence time.Duration
}

// Relay is safe for concurrent use. Its clock is the monotonic one of this
// process: a restart knows of no host until it polls.
type Relay struct {
	cfg   Config
	began time.Time

	mu      sync.Mutex
	hosts   map[string]*host
	entries map[string]*pendingTask // by task id
}

// New returns a relay that knows of no host yet.
func New(c Config) *Relay {
	if c.AnswerTimeout == 0 {
		c.AnswerTimeout = DefaultAnswerTimeout
	}
	if c.Absence == 0 {
		c.Absence = DefaultAbsence
	}
	return &Relay{cfg: c, began: time.Now(), hosts: map[string]*host{}, entries: map[string]*pendingTask{}}
}

// Close ends the waiting of every caller. Tasks stay as they are stored.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		r.finish(e, api.TaskAnswer{}, api.Errorf(api.CodeRegistryUnavailable,
			"the registry is stopping; host %s may still do what was asked of it", e.name).With("maybe_done", true))
	}
}

// Request is one call of a host's API.
type Request struct {
	// HostID and HostName may be empty for a request that is known by its key.
	HostID   string
	HostName string
	// Who is the caller in the words of the audit trail.
	Who    string
	Method string
	Path   string // with its query
	Body   []byte // a JSON document, or nothing
	// Needs are the features that the host has to have for it (protocol.Needs).
	Needs []string
	// Change says that the call may change something. It is then stored before it is
	// offered, under Key, the Idempotency-Key of the call: who repeats the key finds that
	// task, at the host that it was first meant for.
	Change bool
	Key    string
	// Asked is the request as its caller made it, by which the same request is known
	// again: Path and Body have ids where it may have names. The zero value is a
	// request that was made as it is passed on.
	Asked workflow.TaskRequest
}

// asked is the request by which a change is known again.
func (r Request) asked() workflow.TaskRequest {
	if r.Asked.Path != "" {
		return r.Asked
	}
	return workflow.TaskRequest{Method: r.Method, Path: r.Path, Body: r.Body}
}

// Do has a host answer req and returns the answer. Refusals of the host are
// answers; the error is the registry's own: hypervisor_unavailable if the host
// is not there or does not answer (with the detail maybe_done if it may have
// done it), or idempotency_mismatch. If ctx ends first the task stays what it
// is.
func (r *Relay) Do(ctx context.Context, req Request) (status int, body []byte, err error) {
	e, err := r.ask(ctx, req)
	if err != nil {
		return 0, nil, err
	}
	defer r.leave(e)
	select {
	case <-e.over:
	case <-ctx.Done():
		return 0, nil, fmt.Errorf("wait for host %s: %w", req.HostName, ctx.Err())
	}
	return e.answer.Status, e.answer.Body, e.err
}

// ask makes sure that the request is on its way, and returns what to wait for.
func (r *Relay) ask(ctx context.Context, req Request) (*pendingTask, error) {
	task := api.Task{
		ID: req.Key, Host: req.HostName, Who: req.Who, Method: req.Method, Path: req.Path, State: api.TaskQueued, CreatedAt: time.Now().UTC(),
	}
	if len(req.Body) > 0 {
		task.Body = json.RawMessage(req.Body)
	}
	task.Needs = req.Needs
	if req.Change {
		return r.askChange(ctx, req, task)
	}
	if !r.Present(req.HostID) {
		return nil, r.absent(req.HostID, req.HostName)
	}
	task.ID = readPrefix + uuid.NewString()
	e := r.join(task.ID, req.HostName)
	if refused := r.refusal(req); refused != nil {
		r.settle(e, *refused)
		return e, nil
	}
	r.offer(e, req.HostID, task)
	return e, nil
}

func (r *Relay) askChange(ctx context.Context, req Request, task api.Task) (*pendingTask, error) {
	if isRead(task.ID) {
		return nil, api.Errorf(api.CodeInvalidArgument, "the op id %s begins with %s, as those do of what only reads; use another one", task.ID, readPrefix)
	}
	// One that is known is waited for wherever its host is: it may be done.
	known, _, err := r.cfg.Store.Task(ctx, task.ID)
	if err != nil && api.CodeOf(err) != api.CodeNotFound {
		return nil, err
	}
	isNew := err != nil || known.State == api.TaskWithdrawn
	if isNew && !r.Present(req.HostID) {
		return nil, r.absent(req.HostID, req.HostName)
	}
	if !isNew {
		task.Host = known.Host
	}
	// Before it is stored, so that its answer cannot come between.
	e := r.join(task.ID, req.HostName)
	if refused := r.refusal(req); isNew && refused != nil {
		r.settle(e, *refused)
		return e, nil
	}
	stored, answer, err := r.cfg.Store.CreateTask(ctx, store.Call{Who: req.Who}, task, req.asked())
	if err != nil {
		r.leave(e)
		return nil, err
	}
	if answer != nil {
		r.settle(e, *answer)
		return e, nil
	}
	hostID, err := r.hostOf(ctx, req, stored)
	if err != nil {
		r.leave(e)
		return nil, err
	}
	r.offer(e, hostID, stored)
	return e, nil
}

// hostOf returns the id of the host that a stored task is for, which may be
// another one than req would go to now.
func (r *Relay) hostOf(ctx context.Context, req Request, stored api.Task) (string, error) {
	if req.HostID != "" && stored.Host == req.HostName {
		return req.HostID, nil
	}
	h, err := r.cfg.Store.Host(ctx, stored.Host)
	return h.ID, err
}

// Present says whether a host has a long poll open, or had one not long ago, and is not
// two daemons.
func (r *Relay) Present(hostID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosts[hostID]
	return h != nil && !h.sessions.isDuplicated() && (h.polls > 0 || !h.last.IsZero() && time.Since(h.last) < r.cfg.Absence)
}

func isRead(taskID string) bool { return strings.HasPrefix(taskID, readPrefix) }

// absent says that a host is not there, and since when: a registry that has just been
// started has not heard of hosts that are well.
func (r *Relay) absent(hostID, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := fmt.Sprintf("it has not asked for work since the registry started, %s ago", ago(r.began))
	h := r.hosts[hostID]
	switch {
	case h != nil && h.sessions.isDuplicated():
		since = "two daemons work as this host, and neither is asked for anything until one of them is gone"
	case h != nil && !h.last.IsZero():
		since = fmt.Sprintf("it asked for work last %s ago", ago(h.last))
	}
	return api.Errorf(api.CodeHypervisorUnavailable, "host %s is not there: %s; nothing was done; look at volferryd on that host", name, since)
}

func ago(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }
