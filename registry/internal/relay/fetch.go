// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/printable"
	"github.com/volferry/volferry/registry/internal/store"
)

// Fetch returns the tasks of a host. If there are none, it waits for the first, at most for the
// time wait. session identifies the daemon's process: a new process gets every unanswered task
// again. A new poll ends the previous one without tasks, as its connection may be dead. Two
// daemons that alternate as one host get a conflict (DuplicateSessions). admit, called during the
// poll, may refuse the host; call EndPoll when its result changes.
func (r *Relay) Fetch(ctx context.Context, call store.Call, hostID, session string, wait time.Duration, admit func() error) ([]api.Task, error) {
	if err := r.admitSession(ctx, hostID, session); err != nil {
		return nil, err
	}
	h, p := r.enter(hostID)
	defer func() { r.exit(h, p, hostID, ctx.Err() != nil) }()
	if err := admit(); err != nil {
		return nil, err
	}
	if err := r.resume(ctx, h, call, hostID, session); err != nil {
		return nil, err
	}
	enough := time.NewTimer(wait)
	defer enough.Stop()
	for {
		tasks, err := r.handOut(ctx, h, p, call, hostID)
		if err != nil || len(tasks) > 0 {
			return tasks, err
		}
		select {
		case <-p.wake:
		case <-p.superseded:
			return []api.Task{}, nil
		case <-enough.C:
			return []api.Task{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Lost records that the tasks returned by Fetch did not reach the host. The next poll gets them
// again.
func (r *Relay) Lost(hostID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.host(hostID).session = ""
}

func (r *Relay) enter(hostID string) (*host, *poll) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.host(hostID)
	if h.poll != nil {
		close(h.poll.superseded)
	}
	h.poll = &poll{wake: make(chan struct{}, 1), superseded: make(chan struct{})}
	h.polls++
	return h, h.poll
}

// EndPoll ends the open poll of a host without tasks. The host polls again, and admit is called
// again: it refuses a fenced host.
func (r *Relay) EndPoll(hostID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.hosts[hostID]; h != nil && h.poll != nil {
		close(h.poll.superseded)
		h.poll = nil
	}
}

func (r *Relay) exit(h *host, p *poll, hostID string, broke bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.polls--
	h.last = time.Now()
	if h.poll != p {
		return // a newer poll has replaced this one
	}
	h.poll = nil
	if broke && r.cfg.OnBreak != nil {
		r.cfg.OnBreak(hostID)
	}
}

// resume queues the unanswered tasks of a host for a new session.
func (r *Relay) resume(ctx context.Context, h *host, call store.Call, hostID, session string) error {
	h.resume.Lock()
	defer h.resume.Unlock()
	r.mu.Lock()
	same := h.session == session
	r.mu.Unlock()
	if same {
		return nil
	}
	pending, err := r.cfg.Tasks.Pending(ctx, hostID)
	if err != nil {
		return err
	}
	for _, task := range pending {
		if task.State == api.TaskQueued && r.forgotten(task.ID) {
			// Its caller's wait ended before the host polled.
			if _, err := r.cfg.Tasks.Withdraw(ctx, store.Call{Who: call.Who}, task.ID); err != nil {
				return err
			}
			continue
		}
		e := r.join(task.ID, hostID)
		r.offer(e, hostID, task)
		r.leave(e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.offered && e.host == hostID {
			r.enqueue(e)
		}
	}
	h.session = session
	return nil
}

// forgotten reports whether a queued task has no caller: none here, and none of an earlier process
// can still wait.
func (r *Relay) forgotten(taskID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entries[taskID] == nil && time.Since(r.began) >= r.cfg.AnswerTimeout
}

// handOut returns the queued tasks of a host. It returns a task that changes something only after
// the store has marked the task as taken.
func (r *Relay) handOut(ctx context.Context, h *host, p *poll, call store.Call, hostID string) ([]api.Task, error) {
	batch := r.dequeue(h, p)
	var ids []string
	for _, e := range batch {
		if !isRead(e.id) {
			ids = append(ids, e.id)
		}
	}
	taken := map[string]api.Task{}
	if len(ids) > 0 {
		// The end of this poll must not leave the result of Take unknown.
		tasks, err := r.cfg.Tasks.Take(context.WithoutCancel(ctx), call, hostID, ids)
		if err != nil {
			r.Lost(hostID)
			return nil, err
		}
		for _, t := range tasks {
			taken[t.ID] = t
		}
	}
	if ctx.Err() != nil {
		r.Lost(hostID)
		return nil, ctx.Err()
	}
	tasks := []api.Task{}
	for _, e := range batch {
		task, ok := taken[e.id]
		switch {
		case isRead(e.id):
			tasks = append(tasks, e.task)
		case ok:
			tasks = append(tasks, task)
		default:
			r.lookAgain(ctx, e)
		}
	}
	return tasks, nil
}

// dequeue takes the queued tasks of a host; nil if another poll has replaced p.
func (r *Relay) dequeue(h *host, p *poll) []*pendingTask {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.poll != p {
		return nil
	}
	batch := h.queue
	h.queue = nil
	return batch
}

// lookAgain handles a task that the store did not mark as taken. Either it has an answer, or it
// was withdrawn and the wait for it ends by itself.
func (r *Relay) lookAgain(ctx context.Context, e *pendingTask) {
	if _, answer, err := r.cfg.Tasks.Get(ctx, e.id); err == nil && answer != nil {
		r.settle(e, *answer)
	}
}

// Answer passes a host's answer to the waiting callers. For a change the first answer counts. An
// answer to a read without callers is dropped. Answer makes the untrusted text printable, for
// terminals.
func (r *Relay) Answer(ctx context.Context, call store.Call, hostID, taskID string, a api.TaskAnswer) (err error) {
	if a.Body, err = printable.JSON(a.Body); err != nil {
		return api.Errorf(api.CodeInvalidArgument, "the answer of task %.80q is no JSON: %v", taskID, err)
	}
	if isRead(taskID) {
		return r.answerRead(hostID, taskID, a)
	}
	if err := r.cfg.Tasks.Answer(ctx, call, hostID, taskID, a); err != nil {
		return err
	}
	r.mu.Lock()
	e := r.entries[taskID]
	r.mu.Unlock()
	if e == nil {
		return nil
	}
	_, stored, err := r.cfg.Tasks.Get(ctx, taskID)
	if err != nil {
		return err
	}
	if stored != nil {
		r.settle(e, *stored)
	}
	return nil
}

func (r *Relay) answerRead(hostID, taskID string, a api.TaskAnswer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[taskID]
	if e == nil {
		return nil
	}
	if e.host != hostID {
		return api.Errorf(api.CodeNotYourHost, "cannot answer task %s: it is of another host", taskID)
	}
	r.finish(e, a, nil)
	return nil
}

func (r *Relay) admitSession(ctx context.Context, hostID, session string) error {
	r.mu.Lock()
	h := r.host(hostID)
	news := h.sessions.note(session)
	two := h.sessions.isDuplicated()
	r.mu.Unlock()
	if news {
		r.cfg.Log.Error("two daemons work as one host: neither is asked for anything until one of them is gone", "host", hostID)
		if err := r.cfg.Trail.AuditSeen(context.WithoutCancel(ctx), "host.two", "host/"+hostID); err != nil {
			r.cfg.Log.Warn("that two daemons work as one host was not audited", "host", hostID, "err", err)
		}
	}
	if two {
		return api.Errorf(api.CodeConflict, "two daemons ask for work as host %s: was its machine, or its certificate, copied? Give one of them a certificate and a host id of its own, or turn it off", hostID)
	}
	return nil
}
