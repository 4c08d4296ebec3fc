// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strconv"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// Tasks returns the tasks of a host. It waits for the first task, at most for wait (whole
// seconds). session identifies a run of the daemon: a new run gets all unanswered tasks again.
func (r *Registry) Tasks(ctx context.Context, hostID, session string, wait time.Duration) ([]api.Task, error) {
	route := routes.FetchTasks.With("session", session).With("wait_seconds", strconv.Itoa(int(wait/time.Second)))
	var tasks []api.Task
	err := r.Do(asChange(ctx), route.Method, route.PathOf(hostID), nil, &tasks, waitLonger(wait), noun(route.Noun))
	return tasks, err
}

// AnswerTask sends the daemon's answer to a task. It has no op id, since the first answer counts.
func (r *Registry) AnswerTask(ctx context.Context, hostID, taskID string, in api.TaskAnswer) error {
	_, err := change(ctx, r, routes.AnswerTask, "", in, hostID, taskID)
	return err
}
