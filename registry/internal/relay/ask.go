// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// Close ends the wait of every caller. Stored tasks do not change.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		r.finish(e, api.TaskAnswer{}, api.Errorf(api.CodeRegistryUnavailable,
			"the registry is stopping; host %s may still do what was asked of it", e.name).With("maybe_done", true))
	}
}

// Do sends req to its host and returns the host's answer, which may be a refusal. Errors are the
// registry's: hypervisor_unavailable if the host is not connected or does not answer (with the
// detail maybe_done if it may have carried out the request), or idempotency_mismatch. If ctx ends
// first, the task stays.
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
	task.ID, task.Path = readPrefix+uuid.NewString(), req.pathWithWait()
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
	// Wait for a known task even if its host is away: it may be done.
	known, _, err := r.cfg.Tasks.Get(ctx, task.ID)
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
	// Join before the task is stored, so that its answer is not missed.
	e := r.join(task.ID, req.HostName)
	if refused := r.refusal(req); isNew && refused != nil {
		r.settle(e, *refused)
		return e, nil
	}
	stored, answer, err := r.cfg.Tasks.Create(ctx, store.Call{Who: req.Who}, task, req.asked())
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

// hostOf returns the id of the stored task's host, which may differ from the host of req.
func (r *Relay) hostOf(ctx context.Context, req Request, stored api.Task) (string, error) {
	if req.HostID != "" && stored.Host == req.HostName {
		return req.HostID, nil
	}
	h, err := r.cfg.Hosts.Get(ctx, stored.Host)
	return h.ID, err
}

// Present reports whether exactly one daemon has polled for a host recently, or polls now.
func (r *Relay) Present(hostID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosts[hostID]
	return h != nil && !h.sessions.isDuplicated() && (h.polls > 0 || !h.last.IsZero() && time.Since(h.last) < r.cfg.Absence)
}

// KnownHosts lists the hosts of the registry.
type KnownHosts interface {
	All(ctx context.Context) ([]api.Host, error)
}

// PresentHosts returns the ids of the present hosts.
func (r *Relay) PresentHosts(ctx context.Context, known KnownHosts) ([]string, error) {
	hosts, err := known.All(ctx)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, h := range hosts {
		if r.Present(h.ID) {
			ids = append(ids, h.ID)
		}
	}
	return ids, nil
}

// absent returns the error for a host that is not present. A just started registry does not know
// the present hosts.
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

// DuplicateSessions returns the ids of the hosts with two polling daemons. Neither gets tasks: the
// registry cannot know which machine has the guests.
func (r *Relay) DuplicateSessions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := []string{}
	for id, h := range r.hosts {
		if h.sessions.isDuplicated() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
