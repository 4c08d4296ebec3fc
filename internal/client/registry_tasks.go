// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strconv"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// Tasks returns the tasks of a host, and waits up to wait (whole seconds) for the first.
// Session names this run of the daemon: a new run gets again all tasks that have no answer
// yet.
func (r *Registry) Tasks(ctx context.Context, hostID, session string, wait time.Duration) ([]api.Task, error) {
	route := routes.FetchTasks.With("session", session).With("wait_seconds", strconv.Itoa(int(wait/time.Second)))
	var tasks []api.Task
	err := r.Do(asChange(ctx), route.Method, route.PathOf(hostID), nil, &tasks, waitLonger(wait), noun(route.Noun))
	return tasks, err
}

// AnswerTask hands in the answer of the daemon's API to a task. The first answer counts, so
// it takes no op id.
func (r *Registry) AnswerTask(ctx context.Context, hostID, taskID string, in api.TaskAnswer) error {
	_, err := change(ctx, r, routes.AnswerTask, "", in, hostID, taskID)
	return err
}
