// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

const (
	tasksAtOnce    = 32
	answerRetryMax = 5 * time.Second
)

// Perform makes the API call of a task.
type Perform func(ctx context.Context, t api.Task) api.TaskAnswer

// RunTasks fetches and answers the registry's tasks for this host, until ctx ends. If the registry
// has no answer to a task, it sends the task again; the daemon then finds the task's call in the
// journal.
func (u *Uplink) RunTasks(ctx context.Context, perform Perform) error {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, tasksAtOnce)
	for first := true; ctx.Err() == nil; {
		wait := u.pollFor()
		if first {
			wait = u.within(fetchWait, wait)
		}
		tasks, err := u.fetch(ctx, wait)
		if first = err != nil; err != nil {
			if u.afterBrokenPoll(ctx) != nil {
				return nil
			}
			continue
		}
		for _, t := range tasks {
			if !u.tasks.claim(t.ID) {
				continue // it was sent again while it runs
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			running.Go(func() {
				defer func() { <-slots; u.tasks.unclaim(t.ID) }()
				u.serve(ctx, t, perform)
			})
		}
		// This pause is for a registry that answers an empty poll at once.
		if retry.Sleep(ctx, fetchPause) != nil {
			return nil
		}
	}
	return nil
}

const fetchPause = 20 * time.Millisecond

// fetch polls the registry for tasks, for at most wait. A fenced host fetches none: it could not
// answer.
func (u *Uplink) fetch(ctx context.Context, wait time.Duration) ([]api.Task, error) {
	if err := u.Admit(); err != nil {
		return nil, err
	}
	if _, known := u.knownHost(); !known {
		return nil, api.Errorf(api.CodeRegistryUnavailable, "the registry has not heard of this host yet")
	}
	_, epoch := u.Token()
	began := time.Now()
	u.polling.Add(1)
	tasks, err := u.cfg.Registry.Tasks(ctx, u.cfg.HostID, u.session, wait)
	u.polling.Add(-1)
	if err == nil && len(tasks) == 0 {
		u.reportAfterPoll(ctx, began, wait)
	}
	if err != nil && ctx.Err() == nil {
		err = u.refused(epoch, true, err)
	}
	return tasks, err
}

// TasksRunning returns the number of tasks without an answer.
func (u *Uplink) TasksRunning() int { return u.tasks.count() }

func (u *Uplink) serve(ctx context.Context, t api.Task, perform Perform) {
	begin := time.Now()
	answer := fitting(perform(ctx, t))
	u.cfg.Log.Info("task", "task", t.ID, "who", t.Who, "method", t.Method, "path", t.Path, "status", answer.Status, "took", time.Since(begin))
	send := func() error {
		_, epoch := u.Token()
		err := u.cfg.Registry.AnswerTask(ctx, u.cfg.HostID, t.ID, answer)
		if err == nil || ctx.Err() != nil {
			return err
		}
		return u.refused(epoch, true, err)
	}
	again := func(err error) bool {
		switch api.CodeOf(err) {
		case api.CodeRegistryUnavailable, api.CodeStaleEpoch, api.CodeInternal:
			u.cfg.Log.Debug("the answer of a task is sent again", "task", t.ID, "err", err)
			return true
		default: // the registry knows the task and refuses the answer
			return false
		}
	}
	err := retry.Do(ctx, retry.Backoff{First: retryEvery, Max: answerRetryMax}, retry.Forever, send, again)
	if err != nil && ctx.Err() == nil {
		u.cfg.Log.Warn("the registry refuses the answer of a task", "task", t.ID, "err", err)
	}
}

// maxAnswerBytes is half of the registry's limit: JSON escapes may lengthen the answer.
const maxAnswerBytes = 512 << 10

func fitting(a api.TaskAnswer) api.TaskAnswer {
	if len(a.Body) <= maxAnswerBytes && json.Valid(a.Body) {
		return a
	}
	why := api.Errorf(api.CodeInternal, "the answer of the host (%d bytes) cannot be passed on; ask at the host itself", len(a.Body))
	body, err := json.Marshal(api.ErrorBody{Error: why})
	if err != nil {
		body = json.RawMessage(`{}`)
	}
	return api.TaskAnswer{Status: why.Code.HTTPStatus(), Body: body}
}
