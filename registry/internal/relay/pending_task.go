// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

func (e *pendingTask) isOver() bool {
	select {
	case <-e.over:
		return true
	default:
		return false
	}
}

// join returns the pendingTask with this id, and creates it if there is none. The caller must call
// leave.
func (r *Relay) join(id, hostName string) *pendingTask {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		e = &pendingTask{id: id, name: hostName, over: make(chan struct{})}
		r.entries[id] = e
	}
	e.waiting++
	return e
}

// leave ends a caller's wait. It removes a task without callers, except a change that its host may
// fetch.
func (r *Relay) leave(e *pendingTask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.waiting--
	if e.waiting > 0 {
		return
	}
	switch {
	case !e.offered:
		r.forget(e)
	case isRead(e.id) && !e.isOver():
		// No caller waits for it any more.
		r.finish(e, api.TaskAnswer{}, context.Canceled)
	}
}

// offer queues a task for its host, and starts the task's timeout. A task that the host took
// before may not have arrived, and is sent again; the host recognizes its id.
func (r *Relay) offer(e *pendingTask, hostID string, task api.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.offered || e.isOver() {
		return
	}
	e.host, e.name, e.task, e.offered = hostID, cmp.Or(task.Host, e.name), task, true
	e.expiry = time.AfterFunc(r.cfg.AnswerTimeout, func() { r.expire(e) })
	r.enqueue(e)
}

// enqueue queues a task for its host. The caller must hold mu.
func (r *Relay) enqueue(e *pendingTask) {
	h := r.host(e.host)
	if !slices.Contains(h.queue, e) {
		h.queue = append(h.queue, e)
	}
	if h.poll != nil {
		h.poll.notify()
	}
}

// finish sets the result of a task, wakes the task's callers, and removes the task. The first
// result counts. The caller must hold mu.
func (r *Relay) finish(e *pendingTask, a api.TaskAnswer, err error) {
	if e.isOver() {
		return
	}
	e.answer, e.err = a, err
	close(e.over)
	r.forget(e)
}

// forget removes a task from the relay. The caller must hold mu.
func (r *Relay) forget(e *pendingTask) {
	if e.expiry != nil {
		e.expiry.Stop()
	}
	if r.entries[e.id] == e {
		delete(r.entries, e.id)
	}
	if h := r.hosts[e.host]; h != nil {
		h.queue = slices.DeleteFunc(h.queue, func(other *pendingTask) bool { return other == e })
	}
}

// settle is finish for a caller that does not hold mu.
func (r *Relay) settle(e *pendingTask, a api.TaskAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finish(e, a, nil)
}

// expire ends the wait for a task. It first withdraws a task that changes something, which the
// store allows only if the host has not taken it, so that it is certainly not done.
func (r *Relay) expire(e *pendingTask) {
	r.mu.Lock()
	over := e.isOver()
	// A later caller gets a new pendingTask.
	r.forget(e)
	r.mu.Unlock()
	if over {
		return
	}
	answer, err := r.giveUp(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finish(e, answer, err)
}

func (r *Relay) giveUp(e *pendingTask) (api.TaskAnswer, error) {
	if isRead(e.id) {
		return api.TaskAnswer{}, api.Errorf(api.CodeHypervisorUnavailable,
			"host %s does not answer within %s; look at volferryd on that host", e.name, r.cfg.AnswerTimeout)
	}
	ctx := context.Background()
	withdrawn, err := r.cfg.Tasks.Withdraw(ctx, store.Call{Who: e.task.Who}, e.id)
	if err == nil && withdrawn {
		return api.TaskAnswer{}, api.Errorf(api.CodeHypervisorUnavailable,
			"host %s did not fetch the request within %s; it was withdrawn and nothing was done; look at volferryd on that host", e.name, r.cfg.AnswerTimeout)
	}
	if err != nil {
		r.cfg.Log.Warn("it is not known whether a host took its task", "task", e.id, "host", e.name, "err", err)
	} else if _, answer, err := r.cfg.Tasks.Get(ctx, e.id); err == nil && answer != nil {
		return *answer, nil
	}
	return api.TaskAnswer{}, api.Errorf(api.CodeHypervisorUnavailable,
		"host %s did not answer within %s and may have done what was asked: look what became of it before you ask again", e.name, r.cfg.AnswerTimeout).
		With("maybe_done", true)
}
