// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// Tasks returns the tasks of a host, waiting up to wait (whole seconds) until
// there is one. Session is of this run of the daemon: another one is given again
// what was not answered.
func (r *Registry) Tasks(ctx context.Context, hostID, session string, wait time.Duration) ([]api.Task, error) {
	path := fmt.Sprintf("%s/tasks?session=%s&wait_seconds=%d", to("hosts", hostID), url.QueryEscape(session), wait/time.Second)
	var tasks []api.Task
	err := r.Do(ctx, http.MethodGet, path, nil, &tasks, patience(wait))
	return tasks, err
}

// AnswerTask hands in what the daemon's API answered to a task. The first answer
// counts, so it takes no op id.
func (r *Registry) AnswerTask(ctx context.Context, hostID, taskID string, in api.TaskAnswer) error {
	return r.Do(ctx, http.MethodPost, to("hosts", hostID)+"/tasks/"+url.PathEscape(taskID)+"/answer", in, nil)
}
